"""A Perfetto trace read with the public schema, as a trace processor would: clocks, texts, brackets, arrows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_MODULE = "perfetto.protos.perfetto.trace.perfetto_trace_pb2"
_TEXTS = {
    "event_names": "name",
    "event_categories": "name",
    "debug_annotation_names": "name",
    "debug_annotation_string_values": "str",
}


@dataclass
class Slice:
    """A finished slice, or an instant (both times equal)."""

    track: int
    name: str
    categories: list[str]
    args: dict[str, int | str]
    start_ns: int
    end_ns: int = -1
    flows: list[int] = field(default_factory=list)


@dataclass
class Decoded:
    """What a trace holds; tracks by uuid."""

    tracks: dict[int, Any] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    counters: dict[int, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    arrows: set[tuple[int, int]] = field(default_factory=set)
    """Pairs of ``event_id``."""

    def path(self, track: int) -> tuple[str, ...]:
        """Names of a track and those above it, from the process down."""
        found = self.tracks[track]
        name = found.process.process_name if found.HasField("process") else found.name
        return (*(self.path(found.parent_uuid) if found.parent_uuid else ()), name)


def decode(path: Path) -> Decoded:
    """Read a trace; every slice must be closed in the order of brackets."""
    schema = pytest.importorskip(_MODULE)
    unknown = pytest.importorskip("google.protobuf.unknown_fields")
    trace = schema.Trace()
    trace.ParseFromString(path.read_bytes())
    out = Decoded()
    events = []
    sequences: dict[int, dict[str, Any]] = {}
    for packet in trace.packet:
        for part in (packet, packet.track_event, packet.track_descriptor, packet.interned_data):
            assert not len(unknown.UnknownFieldSet(part)), "a field that the schema does not have"
        _setting(packet, sequences)
        if packet.HasField("track_descriptor"):
            described = packet.track_descriptor
            assert described.uuid not in out.tracks, "a track is described twice"
            assert not described.parent_uuid or described.parent_uuid in out.tracks
            out.tracks[described.uuid] = described
        if packet.HasField("track_event"):
            state = sequences[packet.trusted_packet_sequence_id]
            state["now"] += packet.timestamp
            assert packet.sequence_flags & 2, "texts by number need the sequence's state"
            events.append((state["now"], packet.track_event, state["texts"]))
    _replay(sorted(events, key=lambda event: event[0]), out)
    return out


def _setting(packet: Any, sequences: dict[int, dict[str, Any]]) -> None:
    """Clocks and texts that a packet brings."""
    if packet.sequence_flags & 1:
        assert packet.trace_packet_defaults.timestamp_clock_id == 64
        sequences[packet.trusted_packet_sequence_id] = {"texts": defaultdict(dict)}
    if packet.HasField("clock_snapshot"):
        clocks = {clock.clock_id: clock for clock in packet.clock_snapshot.clocks}
        assert clocks[64].is_incremental
        assert clocks[64].unit_multiplier_ns == 1
        assert clocks[64].timestamp == clocks[6].timestamp == clocks[1].timestamp
        sequences[packet.trusted_packet_sequence_id]["now"] = clocks[64].timestamp
    for kind, attribute in _TEXTS.items():
        for entry in getattr(packet.interned_data, kind):
            text = getattr(entry, attribute)
            known = sequences[packet.trusted_packet_sequence_id]["texts"][kind]
            assert entry.iid not in known, "a text is introduced twice"
            known[entry.iid] = text if isinstance(text, str) else text.decode()


def _replay(events: list[tuple[int, Any, Any]], out: Decoded) -> None:
    """Open and close slices in order of time, and draw an arrow from each slice of a flow to the next."""
    is_open: dict[int, list[Slice]] = defaultdict(list)
    last: dict[int, Slice] = {}
    for at, event, texts in events:
        assert event.track_uuid in out.tracks
        if event.type == 2:
            is_open[event.track_uuid].pop().end_ns = at
            continue
        if event.type == 4:
            out.counters[event.track_uuid].append((at, event.double_counter_value))
            continue
        found = _slice(at, event, texts)
        out.slices.append(found)
        for flow in event.flow_ids:
            if flow in last:
                out.arrows.add((int(last[flow].args["event_id"]), int(found.args["event_id"])))
            last[flow] = found
        if event.type == 1:
            is_open[event.track_uuid].append(found)
    assert not any(is_open.values()), "a slice is never closed"


def _slice(at: int, event: Any, texts: Any) -> Slice:
    args: dict[str, int | str] = {}
    for note in event.debug_annotations:
        kind = note.WhichOneof("value") or "string_value_iid"
        value = getattr(note, kind)
        strings = texts["debug_annotation_string_values"]
        args[texts["debug_annotation_names"][note.name_iid]] = strings[value] if kind == "string_value_iid" else value
    categories = [texts["event_categories"][iid] for iid in event.category_iids]
    name = texts["event_names"][event.name_iid]
    end = at if event.type == 3 else -1
    return Slice(event.track_uuid, name, categories, args, at, end, list(event.flow_ids))
