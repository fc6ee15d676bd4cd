"""Inquiries as a Django app: what it brings to the frame."""

from orchestrator.core.frame import (
    AUTHOR,
    OPERATOR,
    VIEWER,
    ExecutorPart,
    Feed,
    HeldRuntime,
    HotQueue,
    Life,
    Maintenance,
    MusterApp,
    Named,
    Permission,
    Retention,
    SidebarItem,
)

EVERYBODY = (VIEWER, OPERATOR, AUTHOR)


class InquiriesConfig(MusterApp):
    name = "orchestrator.inquiries"
    verbose_name = "Inquiries"

    api_routers = (("/inquiries", "orchestrator.inquiries.api.inquiries.router"),)
    held_runtimes = (
        HeldRuntime(
            "inquiry",
            take=Named("orchestrator.inquiries.waiting.take"),
            deadline_seconds=Named("orchestrator.inquiries.waiting.deadline_seconds"),
        ),
    )
    executor_parts = (
        ExecutorPart(
            HotQueue(
                Named("orchestrator.inquiries.messages.queue"), "muster.answered", "inquiry_ids"
            ),
            take=Named("orchestrator.inquiries.resuming.resume"),
            ended=Named("orchestrator.inquiries.resuming.note_ended"),
            look=Named("orchestrator.inquiries.resuming.look"),
            any_open=Named("orchestrator.inquiries.resuming.any_open"),
        ),
    )
    maintenance = (
        Maintenance(
            "muster.expire_inquiries",
            Named("orchestrator.inquiries.resuming.expire_inquiries"),
            "Ends inquiries that nobody answered in time.",
            is_slow=True,
        ),
    )
    when_clock_was_set_back = (Named("orchestrator.inquiries.resuming.bring_forward"),)
    retention = (
        Retention(
            name="inquiries",
            days="keep_inquiries_days",
            model="inquiries.Inquiry",
            ended="ended_at",
            old=Named("orchestrator.inquiries.retention.old_inquiries"),
            parts=("inquiries.InquiryRecord.inquiry", "inquiries.InquiryWait.inquiry"),
        ),
    )
    permissions = (
        Permission("inquiries.read", "See inquiries.", roles=EVERYBODY),
        Permission(
            "inquiries.respond",
            "Answer inquiries. Also needed: to be one of those that the inquiry names.",
            roles=(OPERATOR, AUTHOR),
        ),
        Permission("inquiries.ask", "Ask people by a request.", roles=(OPERATOR, AUTHOR)),
        Permission(
            "inquiries.cancel",
            "Cancel inquiries: what they hold up fails.",
            roles=(OPERATOR,),
        ),
    )
    feeds = (
        Feed(
            entity="inquiry",
            model="inquiries.Inquiry",
            permission="inquiries.read",
            about=Named("orchestrator.inquiries.feeds.inquiries"),
            columns=("state",),
        ),
    )
    execution_secrets = (Named("orchestrator.inquiries.shown.inquiries.secrets_of"),)
    execution_facts = (Named("orchestrator.inquiries.shown.inquiries.of_execution"),)
    overview = (Named("orchestrator.inquiries.admin.overview.boxes"),)
    metrics = (Named("orchestrator.inquiries.metrics.families"),)
    metrics_described = ("orchestrator.inquiries.metrics.METRICS",)
    table_rights = ("orchestrator.inquiries.rights.TABLES",)
    sidebar = (SidebarItem("Work", "Inquiries", "contact_support", "inquiries.inquiry"),)
    kinds = ("orchestrator.inquiries.states.ENDS",)
    lives = (
        Life(
            "Inquiries",
            machine="orchestrator.inquiries.states.INQUIRIES",
            begins="asked",
            intro="An inquiry is a question to people, see [inquiries](inquiries.md). It ends "
            "once, however many answers, cancels and timeouts come at the same moment.",
        ),
    )
