"""No boundary of a commit, a message or an acknowledgement is forgotten."""

from __future__ import annotations

from tests.chaos import campaign, failpoints, injection


def test_table_of_boundaries_names_every_site_of_the_code() -> None:
    sites = {site.name for site in injection.sites()}
    known = set(failpoints.BOUNDARIES)

    assert sorted(sites - known) == [], "say in failpoints.py how they are reached"
    assert sorted(known - sites) == [], "they are in the code no more"


def test_each_boundary_is_reached_or_says_why_not() -> None:
    for site, boundary in failpoints.BOUNDARIES.items():
        assert bool(boundary.services) != bool(boundary.exempt), site
        provokes = boundary.provoked_by.replace(" ", "_")
        assert not provokes or hasattr(campaign.Provoker, provokes), site
