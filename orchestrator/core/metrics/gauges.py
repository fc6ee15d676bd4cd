"""Gauges: what is true at the moment of a scrape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily


@dataclass(frozen=True)
class Gauge:
    """A number, or one for each value of a label."""

    name: str
    text: str
    label: str = ""

    @property
    def labels(self) -> list[str]:
        return [self.label] if self.label else []

    def of(self, number: float) -> GaugeMetricFamily:
        """The family of a gauge without a label."""
        return GaugeMetricFamily(self.name, self.text, value=number)

    def by(self, numbers: Mapping[str, float]) -> GaugeMetricFamily:
        """The family with a number for each value of its label, or with none."""
        family = GaugeMetricFamily(self.name, self.text, labels=self.labels)
        for value, number in numbers.items():
            family.add_metric([value] if self.label else [], number)
        return family
