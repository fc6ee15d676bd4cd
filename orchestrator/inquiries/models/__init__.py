"""The models of inquiries."""

from orchestrator.inquiries.models.inquiries import Inquiry, InquiryRecord, InquiryWait

__all__ = ["Inquiry", "InquiryRecord", "InquiryWait"]
