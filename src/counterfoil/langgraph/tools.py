"""What a LangChain tool is made of: which of its arguments a model chooses, which are injected, and how it is run."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from counterfoil import codec
from counterfoil.core.templates import TRUSTED_FIELDS, Template
from counterfoil.errors import ContradictoryDeclaration, InvalidArguments, UnsupportedValue
from counterfoil.rebuilding import hints
from counterfoil.rewriting import misfit

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from counterfoil.effects import Schema

Parameter = inspect.Parameter


def check_tool(tool: object) -> BaseTool:
    """Return a tool whose arguments have names.

    Raises:
        InvalidArguments: it is no LangChain tool.
        ContradictoryDeclaration: it has no schema, so that there is nothing that a key could be made of.
    """
    if not isinstance(tool, BaseTool):
        raise InvalidArguments(
            f"protect takes a LangChain tool, not {getattr(tool, '__name__', type(tool).__name__)!r}. Put @tool above"
            " the function, or write StructuredTool.from_function(function)."
        )
    if tool.args_schema is None:
        raise ContradictoryDeclaration(
            f"The tool {tool.name} has no args_schema, so that its arguments have no names of which an operation could"
            " be told from another one. Declare it with @tool or StructuredTool.from_function, or give it an"
            " args_schema."
        )
    return tool


def parameters(tool: BaseTool, business: Collection[str]) -> dict[str, Parameter]:
    """Return a tool's business arguments: those that a model chooses, and the injected ones that are named.

    Raises:
        ContradictoryDeclaration: one is named that is not injected.
    """
    schema = tool.args_schema
    if isinstance(schema, dict):
        return _of_json_schema(tool, schema, business)
    full = _of_model(tool.get_input_schema())
    chosen = _of_model(tool.tool_call_schema).keys()
    if unknown := sorted(set(business) - _injected_fields(tool)):
        raise ContradictoryDeclaration(
            f"protect({tool.name}, injected=...) names {', '.join(unknown)}, which the tool does not have injected."
        )
    return {name: each for name, each in full.items() if name in chosen or name in business}


def _of_json_schema(tool: BaseTool, schema: dict[str, Any], business: Collection[str]) -> dict[str, Parameter]:
    if business:
        raise ContradictoryDeclaration(
            f"protect({tool.name}, injected=...): a tool with a JSON schema has no injected arguments that could count."
        )
    required = schema.get("required") or ()
    found = schema.get("properties") or {}
    return {
        name: _parameter(
            name,
            _type_of(each, required=name in required),
            Parameter.empty if name in required else each.get("default"),
        )
        for name, each in found.items()
    }


_JSON_TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


def _type_of(schema: Any, *, required: bool) -> Any:
    """Return the type that a JSON schema names for an argument, as far as it is plain: what a person writes must be."""
    named = schema.get("type") if isinstance(schema, dict) else None
    found = _JSON_TYPES.get(named) if isinstance(named, str) else None
    if found is None:
        return Any
    return found if required or schema.get("default") is not None else found | None


def _of_model(schema: Any) -> dict[str, Parameter]:
    """Return the fields of a model; one whose default is made anew each time has none here, as it is always given."""
    if not issubclass(schema, BaseModel):  # of pydantic 1
        return {name: _parameter(name, Any, _v1_default(each)) for name, each in schema.__fields__.items()}
    return {
        name: _parameter(name, each.annotation, Parameter.empty if each.default is PydanticUndefined else each.default)
        for name, each in schema.model_fields.items()
    }


def _v1_default(field: Any) -> Any:
    return Parameter.empty if field.required or field.default_factory is not None else field.default


def _parameter(name: str, annotation: Any, default: Any) -> Parameter:
    if not name.isidentifier():
        raise ContradictoryDeclaration(
            f"The argument {name!r} has a name that no key can use: rename it in the tool's schema."
        )
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def refuse_injected(tool: BaseTool, key: str, known: Collection[str], stable: Collection[str]) -> None:
    """Refuse a key over what is injected: a model does not choose it, and it need not be the same on re-entry.

    Raises:
        ContradictoryDeclaration: it is one.
    """
    wanted = set(Template.parse(key, stable=stable).fields) - {*known, *TRUSTED_FIELDS}
    if unseen := sorted(wanted & hidden(tool)):
        raise ContradictoryDeclaration(
            f"protect({tool.name}, key={key!r}) uses {', '.join(unseen)}, which is injected and so no part of what is"
            f" done. Make the key of business arguments and trusted fields; or, if it is a business argument that comes"
            f" from the state, say so: injected=({unseen[0]!r},)."
        )


def hidden(tool: BaseTool) -> set[str]:
    """Return what a call brings that no model chooses: what is injected, callbacks and the configuration."""
    body = getattr(tool, "func", None) or getattr(tool, "coroutine", None) or tool._run  # noqa: SLF001 - what tools implement
    by_name = {"runtime"} & inspect.signature(body).parameters.keys()
    by_name |= {"run_manager"} & inspect.signature(tool._run).parameters.keys()  # noqa: SLF001 - what tools implement
    by_type: Collection[str] = getattr(tool, "_injected_args_keys", ())
    return {*by_name, *by_type, *_configurations(tool), *_injected_fields(tool)}


def _injected_fields(tool: BaseTool) -> set[str]:
    if isinstance(tool.args_schema, dict):
        return set()
    return _of_model(tool.get_input_schema()).keys() - _of_model(tool.tool_call_schema).keys()


def _configurations(tool: BaseTool) -> set[str]:
    """Return the names under which LangChain hands the configuration to a tool's own methods."""
    methods = (tool._run, tool._arun)  # noqa: SLF001 - what tools implement
    return {name for method in methods for name, hint in hints(method).items() if hint is RunnableConfig}


def has_blocking(tool: BaseTool) -> bool:
    """Say whether a tool can be run by a blocking caller."""
    return not isinstance(tool, StructuredTool) or tool.func is not None


def has_async(tool: BaseTool) -> bool:
    """Say whether a tool runs on the event loop, rather than in a thread beside it."""
    if isinstance(tool, StructuredTool):
        return tool.coroutine is not None
    return type(tool)._arun is not BaseTool._arun  # noqa: SLF001 - what tools implement


def place(tool: BaseTool) -> tuple[str, str]:
    """Return the module and the qualified name of a tool's code: tools of one place are declared once."""
    body = getattr(tool, "func", None) or getattr(tool, "coroutine", None) or type(tool)
    return str(getattr(body, "__module__", __name__)), str(getattr(body, "__qualname__", type(body).__qualname__))


def judging(tool: BaseTool) -> Schema | None:
    """Return what judges arguments that a person wrote by the tool's schema; None if their types alone can be."""
    schema: Any = tool.tool_call_schema
    if isinstance(schema, dict) or not issubclass(schema, BaseModel):
        return None
    if any(each.alias for each in schema.model_fields.values()):
        return None
    known = schema.model_fields.keys()

    def judge(stored: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
        chosen = {name: value for name, value in {**stored, **changes}.items() if name in known}
        try:
            read = schema.model_validate(chosen)
        except ValidationError as wrong:
            _refuse_misfits(wrong, changes.keys() & known)
            return {name: value for name, value in changes.items() if name in known}
        return {name: getattr(read, name) for name in changes if name in known}

    return judge


def _refuse_misfits(wrong: ValidationError, written: Collection[str]) -> None:
    """Refuse what does not fit; what was there before has been through the schema once, and may not fit it again.

    Raises:
        InvalidArguments: something that was written does not fit.
    """
    places = {str(each["loc"][0]) if each["loc"] else "" for each in wrong.errors()}
    if named := sorted(places & set(written)):
        misfit(named)
    if "" in places:
        misfit(sorted(written))


def fitting(tool: BaseTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that a person wrote as the types that a model's would have become.

    They were judged when they were written, and it is their stored form that was approved: what the schema would make
    something else of stays as it is.
    """
    judge = judging(tool)
    if judge is None:
        return dict(arguments)
    try:
        read = judge({}, arguments)
        whole = {name: codec.canonical_parts({name: value})[name].value for name, value in read.items()}
    except (InvalidArguments, UnsupportedValue):
        return dict(arguments)
    approved = codec.canonical_parts({name: arguments[name] for name in read})
    same = {name: value for name, value in read.items() if whole[name] == approved[name].value}
    return {**arguments, **same}
