"""The errors a user can meet. Each says what is wrong and where; ``hint`` says what to do next."""

from __future__ import annotations


class MarlinGenError(Exception):
    """Base of all errors raised on purpose.

    Args:
        message: what is wrong, naming the value and the rule.
        hint: the way out, one sentence; empty where there is none.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class ConfigError(MarlinGenError):
    """A kernel config, a config file or an architecture name breaks a rule."""


class UnknownNameError(ConfigError):
    """A config names something that does not exist, a quant type for instance: no combination with it can be legal."""


class TemplateError(MarlinGenError):
    """A template is missing, malformed, or breaks its contract; names file and line."""


class LayoutError(MarlinGenError):
    """A tensor does not have the shape, type or layout that an operation needs."""


class ToolchainError(MarlinGenError):
    """A compiler or another tool is missing, too old, or failed."""


class DispatchError(MarlinGenError):
    """No kernel can serve a call, or the call's tensors cannot be served."""


class VerifyError(MarlinGenError):
    """The simulator found a fault, or a kernel computed a wrong number."""
