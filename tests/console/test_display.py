"""Theme, density and time zone: cookies say them, and what they cannot say counts as nothing."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone

from orchestrator.console import display
from orchestrator.core import clock
from orchestrator.core.models import Execution
from tests.factories import make_template
from tests.inquiries import play


def of(**cookies: str) -> display.Display:
    request = RequestFactory().get("/console/")
    request.COOKIES.update(cookies)
    return display.of(request)


def test_a_choice_is_kept_in_cookies() -> None:
    chosen = of(theme="dark", density="compact", zone="browser~Asia/Kolkata")
    assert (chosen.theme, chosen.density) == ("dark", "compact")
    assert (chosen.choice, chosen.zone) == ("browser", "Asia/Kolkata")
    assert (of(zone="UTC").choice, of(zone="UTC").zone) == ("UTC", "UTC")


@pytest.mark.parametrize(
    "zone",
    ["", "browser~", "browser~Nowhere/Town", "Asia", "browser~../../etc/passwd", "/etc/passwd",
     "x" * 65, "browser~Asia/Kolkata\0", "Europe/Berlín"],
)  # fmt: skip
def test_a_zone_that_is_none_counts_as_the_installations(zone: str) -> None:
    assert (of(zone=zone).choice, of(zone=zone).zone) == ("", "UTC")


@pytest.mark.parametrize("value", ["blue", "<b>", "compact "])
def test_a_theme_or_density_that_is_none_counts_as_nothing(value: str) -> None:
    assert (of(theme=value).theme, of(density=value).density) == ("", "")


def test_each_time_of_a_page_is_in_the_chosen_zone_and_says_the_same_moment(
    admin_client: Client, work: None
) -> None:
    execution = Execution.objects.get(status="failed")
    admin_client.cookies["zone"] = "browser~Asia/Kolkata"
    html = admin_client.get(reverse("console:execution", args=[execution.pk])).content.decode()
    times = re.findall(r'<time datetime="([^"]+)">([^<]+)</time>', html)
    assert times
    for moment, shown in times:
        local = datetime.fromisoformat(moment).astimezone(ZoneInfo("Asia/Kolkata"))
        assert shown == f"{local:%Y-%m-%d %H:%M:%S} IST"
    listed = admin_client.get(reverse("console:executions")).content.decode()
    created = execution.created_at.astimezone(ZoneInfo("Asia/Kolkata"))
    assert f"{created:%m-%d %H:%M:%S}" in listed
    assert timezone.get_current_timezone_name() == "UTC"  # of this page alone


@pytest.mark.django_db
def test_times_within_sentences_are_in_the_chosen_zone(admin_client: Client) -> None:
    zone = ZoneInfo("Asia/Kolkata")
    admin_client.cookies["zone"] = f"browser~{zone}"
    inquiry = play.asked(now=clock.now() - timedelta(hours=2), ttl_seconds=60)
    template = make_template()
    for page, args, at in (
        ("inquiry", [inquiry.pk], inquiry.expires_at),
        ("template", [template.namespace, template.name, template.version], template.installed_at),
    ):
        html = admin_client.get(reverse(f"console:{page}", args=args)).content.decode()
        assert f"{at.astimezone(zone):%Y-%m-%d %H:%M:%S IST}" in html
        assert f"{at:%Y-%m-%d %H:%M:%S UTC}" not in html


def test_an_age_is_the_same_in_each_zone(admin_client: Client, work: None) -> None:
    Execution.objects.filter(status="running").update(created_at=clock.now())
    for zone in ("", "browser~Asia/Kolkata"):
        admin_client.cookies["zone"] = zone
        html = admin_client.get(reverse("console:fleet")).content.decode()
        assert re.search(r"<td>\d+(\.\d)? (ms|s) ago</td>", html)
