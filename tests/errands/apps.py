"""What errands bring: one of each kind of thing."""

from orchestrator.core.frame import (
    INSTALLATION,
    OPERATOR,
    VIEWER,
    ExecutorPart,
    HotQueue,
    Life,
    Maintenance,
    MusterApp,
    Named,
    PackContent,
    Permission,
    SidebarItem,
    SubjectKind,
)


class ErrandsConfig(MusterApp):
    name = "tests.errands"

    api_routers = (("/errands", "tests.errands.api.router"),)
    maintenance = (
        Maintenance(
            "muster.drop_old_errands",
            Named("tests.errands.verbs.drop_old"),
            "Drops errands that nobody ran within their time, and opens an investigation.",
        ),
    )
    executor_parts = (
        ExecutorPart(
            HotQueue(Named("tests.errands.verbs.queue"), "muster.run_errands", "errand_ids"),
            take=Named("tests.errands.verbs.run"),
            ended=Named("tests.errands.verbs.note_ended"),
            look=Named("tests.errands.verbs.look"),
            any_open=Named("tests.errands.verbs.any_open"),
        ),
    )
    pack_contents = (
        PackContent(
            "errands",
            ("name",),
            check=Named("tests.errands.kinds.check_kind"),
            install=Named("tests.errands.kinds.install"),
        ),
    )
    subject_kinds = (
        SubjectKind("errand", model="errands.Errand", take=Named("tests.errands.verbs.subjects")),
    )
    permissions = (
        Permission("errands.ask", "Ask for errands.", about=(INSTALLATION,), roles=(OPERATOR,)),
        Permission("errands.read", "See errands.", about=(INSTALLATION,), roles=(VIEWER, OPERATOR)),
    )
    table_rights = ("tests.errands.rights.TABLES",)
    metrics = (Named("tests.errands.verbs.metrics"),)
    metrics_described = ("tests.errands.verbs.METRICS",)
    execution_facts = (Named("tests.errands.verbs.of_execution"),)
    sidebar = (SidebarItem("Errands", "Errands", "directions_run", "errands.errand"),)
    lives = (Life("Errands", machine="tests.errands.states.ERRANDS", begins="asked"),)
