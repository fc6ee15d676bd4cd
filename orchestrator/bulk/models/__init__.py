"""Bulk orders, the rows that they are about, and what was refused."""

from orchestrator.bulk.models.orders import IDS_OF_PART, BulkOrder, BulkPart, Refusal

__all__ = ["IDS_OF_PART", "BulkOrder", "BulkPart", "Refusal"]
