"""The messages of Chakra execution traces, by their published names and field numbers.

From mlcommons/chakra schema/protobuf/et_def.proto (proto3). Its own package isn't on PyPI, so the
classes are made at run time from the tables below; protobuf is imported only when they are.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from typing import Any

PACKAGE = "ChakraProtoMsg"

ENUMS: dict[str, dict[str, int]] = {
    "NodeType": {
        "INVALID_NODE": 0,
        "METADATA_NODE": 1,
        "MEM_LOAD_NODE": 2,
        "MEM_STORE_NODE": 3,
        "COMP_NODE": 4,
        "COMM_SEND_NODE": 5,
        "COMM_RECV_NODE": 6,
        "COMM_COLL_NODE": 7,
    },
    "CollectiveCommType": {
        "ALL_REDUCE": 0,
        "REDUCE": 1,
        "ALL_GATHER": 2,
        "GATHER": 3,
        "SCATTER": 4,
        "BROADCAST": 5,
        "ALL_TO_ALL": 6,
        "REDUCE_SCATTER": 7,
        "REDUCE_SCATTER_BLOCK": 8,
        "BARRIER": 9,
    },
}

# An attribute holds one of these types or a list of it: the n-th has the fields 3+2n and 4+2n.
VALUE_TYPES = (
    "double",
    "float",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "sint32",
    "sint64",
    "fixed32",
    "fixed64",
    "sfixed32",
    "sfixed64",
    "bool",
    "string",
    "bytes",
)

# message -> field -> (number, type); '*' before a type says repeated.
MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    **{f"{kind.capitalize()}List": {"values": (1, f"*{kind}")} for kind in VALUE_TYPES},
    "AttributeProto": {
        "name": (1, "string"),
        "doc_string": (2, "string"),
        **{f"{kind}_val": (3 + 2 * n, kind) for n, kind in enumerate(VALUE_TYPES)},
        **{
            f"{kind}_list": (4 + 2 * n, f"{kind.capitalize()}List")
            for n, kind in enumerate(VALUE_TYPES)
        },
    },
    "GlobalMetadata": {"version": (1, "string"), "attr": (2, "*AttributeProto")},
    "IOInfo": {"values": (1, "string"), "shapes": (2, "string"), "types": (3, "string")},
    "Node": {
        "id": (1, "uint64"),
        "name": (2, "string"),
        "type": (3, "NodeType"),
        "ctrl_deps": (4, "*uint64"),
        "data_deps": (5, "*uint64"),
        "start_time_micros": (6, "uint64"),
        "duration_micros": (7, "uint64"),
        "inputs": (8, "IOInfo"),
        "outputs": (9, "IOInfo"),
        "attr": (10, "*AttributeProto"),
    },
}


@dataclass(frozen=True)
class Schema:
    """The message classes that a trace is written with."""

    GlobalMetadata: Any
    Node: Any
    AttributeProto: Any


def schema_faults() -> list[str]:
    """Return why traces can't be written here, or nothing."""
    try:
        found = importlib.util.find_spec("google.protobuf")
    except ModuleNotFoundError:  # there is no 'google' either
        found = None
    return [] if found else ["--chakra needs protobuf: pip install 'jaxbench[chakra]'"]


@cache
def schema() -> Schema:
    """Return the message classes, made in a pool of their own."""
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    classes = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in ("GlobalMetadata", "Node", "AttributeProto")
    }
    return Schema(**classes)


def _file() -> Any:
    """Return the tables above as a FileDescriptorProto."""
    from google.protobuf import descriptor_pb2

    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package=PACKAGE, syntax="proto3")
    for name, members in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for member, number in members.items():
            enum.value.add(name=member, number=number)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
        for field, (number, kind) in fields.items():
            made = message.field.add(name=field, number=number)
            repeated = kind.startswith("*")
            made.label = field_type.LABEL_REPEATED if repeated else field_type.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            if kind in VALUE_TYPES:
                made.type = getattr(field_type, f"TYPE_{kind.upper()}")
            else:
                made.type = field_type.TYPE_ENUM if kind in ENUMS else field_type.TYPE_MESSAGE
                made.type_name = f".{PACKAGE}.{kind}"
            if name == "AttributeProto" and field.endswith(("_val", "_list")):
                made.oneof_index = 0
    return file
