"""Config in, kernel source out: a pure function of the config and the template tree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import jinja2

from marlin_gen.config.kernel_config import KernelConfig
from marlin_gen.emit.templates import Templates
from marlin_gen.errors import MarlinGenError, TemplateError
from marlin_gen.quant.discovery import SUFFIX, load_quant
from marlin_gen.schedule.plan import KernelPlan

_MACROS = ("constants", "dequant", "scale")


@dataclass(frozen=True)
class Rendered:
    """An emitted kernel.

    Attributes:
        config, plan: what it was made from.
        text: the whole ``kernel.cu``.
    """

    config: KernelConfig
    plan: KernelPlan
    text: str

    @property
    def name(self) -> str:
        """The kernel's name; also the symbol in the text."""
        return self.config.name


class _Loader(jinja2.BaseLoader):
    """Loads through a Templates tree, so that ``--template-dir`` may replace or add any file."""

    def __init__(self, templates: Templates) -> None:
        self.templates = templates

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, None]:
        return self.templates.read(template), self.templates.describe(template), None


def _inset(block: str, spaces: int) -> str:
    """A printed block as part of a deeper one: no blank first or last line, every line but the first indented."""
    return block.strip("\n").replace("\n", "\n" + " " * spaces).strip()


def _toml(value: bool | int | str) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


@cache
def environment(templates: Templates) -> jinja2.Environment:
    """The one Jinja environment of a template tree. Undefined names are errors; ``##`` begins a line statement."""
    env = jinja2.Environment(
        loader=_Loader(templates),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        line_statement_prefix="##",
        autoescape=False,
    )
    env.filters["toml"] = _toml
    env.filters["inset"] = _inset
    return env


def check_legal(config: KernelConfig, templates: Templates) -> None:
    """Raise ConfigError with every broken rule if ``config`` cannot be emitted."""
    KernelPlan.create(config, load_quant(config.quant, templates))


def render(config: KernelConfig, templates: Templates) -> Rendered:
    """Emit one kernel.

    Raises:
        ConfigError: the config breaks rules.
        TemplateError: a template is missing or fails; the message names file and line.
    """
    quant = load_quant(config.quant, templates)
    plan = KernelPlan.create(config, quant)
    env = environment(templates)
    try:
        macros = env.get_template(f"quant/{quant.name}{SUFFIX}").module
        for macro in _MACROS:
            if not hasattr(macros, macro):
                raise TemplateError(f"{quant.source}: macro {macro}(k) is missing; a quant type defines {', '.join(_MACROS)}")
        text = env.get_template(f"kernel/{config.family}/kernel.cu.j2").render(k=config, p=plan, quant=quant, q=macros)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"{error.filename or error.name}:{error.lineno}: {error.message}") from None
    except MarlinGenError:
        raise
    except Exception as error:  # a template may fail in any way that an expression can: what it raises is reported as its own
        raise TemplateError(f"{_where(error)}: {type(error).__name__}: {error}") from None
    return Rendered(config, plan, text)


def _where(error: Exception) -> str:
    """File and line of the innermost template frame of a traceback."""
    where, tb = "template", error.__traceback__
    while tb is not None:
        name = tb.tb_frame.f_code.co_filename
        if name.endswith(".j2"):
            where = f"{name}:{tb.tb_lineno}"
        tb = tb.tb_next
    return where
