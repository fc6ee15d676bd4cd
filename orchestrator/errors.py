"""The root of Muster's exceptions. Each of them sits beside the code that raises it."""


class MusterError(Exception):
    """Muster could not do what was asked."""

    def __init__(self, message: str | None = None) -> None:
        # a subclass's docstring is its message unless the raiser knows more
        super().__init__(message or (self.__doc__ or "").strip())
