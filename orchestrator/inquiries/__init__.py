"""Inquiries: questions to people that hold up executions, and so the steps of tasks.

inquiry = inquiries.asking.ask(question, asked=asked, now=now, actor="executor")
inquiries.answering.respond(inquiry.pk, {"approved": True}, by=principal, now=now)
"""
