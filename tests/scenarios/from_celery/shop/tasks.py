"""The tasks of a small shop, as they ran on Celery."""

import socket
from pathlib import Path

from celery import shared_task


@shared_task(acks_late=True, time_limit=30)
def receipt(order: str, folder: str) -> str:
    """Write the receipt of an order."""
    path = Path(folder) / f"{order}.txt"
    path.write_text(f"Receipt of {order}\n")
    return str(path)


@shared_task(bind=True, max_retries=5)
def charge(self, order: str, amount: float, provider: str) -> dict:
    """Charge an order. While the provider, a file, is not there, it is down."""
    try:
        account = Path(provider).read_text()
    except FileNotFoundError as error:
        raise self.retry(exc=error, countdown=1) from error
    return {"order": order, "amount": amount, "account": account, "retries": self.request.retries}


@shared_task(autoretry_for=(ConnectionError,), retry_backoff=True, ignore_result=True)
def notify(port: int, text: str) -> None:
    """Tell a server on this host."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(text.encode())
