"""The page of permissions, and the roles that have them."""

from __future__ import annotations

from orchestrator.core import frame
from orchestrator.core.management.markdown import page_of, table_of


def page() -> str:
    about = {frame.OWN: "one's own", frame.INSTALLATION: "the whole installation"}
    return page_of(
        "Permissions",
        "Every operation of the API, page and button of the admin, and verb of a command needs one "
        "of these. Roles are fixed sets of them; [access](../access.md) says how they are granted. "
        "A grant with a scope gives what is about packs, namespaces or workers, there, and nothing "
        "that is about the whole installation.",
        table_of(
            ("Permission", *(role.capitalize() for role in frame.ROLES), "About", "Permits"),
            [
                (
                    f"`{each.name}`",
                    *("yes" if role in (*each.roles, frame.ADMIN) else "" for role in frame.ROLES),
                    ", ".join(about.get(name, name) for name in each.about),
                    each.text,
                )
                for each in frame.collect(lambda app: app.permissions)
            ],
        ),
    )
