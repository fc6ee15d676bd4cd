"""The admin of inquiries."""

from orchestrator.inquiries.admin import inquiries

__all__ = ["inquiries"]
