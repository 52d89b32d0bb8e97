"""What the readers of the Neuron runtime's system trace share: event names, attribute keys, spelling of numbers.

Described in the vendor's documentation of the system trace (event types, hardware group) and in public
code that reads these files; grades are in the readers.
"""

from __future__ import annotations

from collections.abc import Mapping

Attributes = dict[str, object]

SYNC_POINT = "timestamp_sync_point"
"""Pairs a reading of the device clock with one of the host clock: a calibration mark, not an activity.

Only two of the four formats hold them. Readers use them (or count them) and give no row for them, so that
all formats give the same rows.
"""

EVENT_TYPES = (
    *("generic", "model_load", "post_request", "nrt_execute", "runtime_execute", "cc_load", "cc_exec_barrier"),
    *("nc_exec_running", "cc_running", "nrt_tensor_read", "nrt_tensor_write", "nrt_tensor_read_batch"),
    *("nrt_tensor_write_batch", "numerical_err", "enc_barrier_recv", "enc_barrier_send", "enc_barrier_both"),
    *("kbl_exec_pre", "kmgr_exec_core", "kbl_exec_wait", "kbl_exec_post", "model_switch", "nrt_model_submit"),
    *("async_sema_wait", "hw_notify", "timestamp_sync_point", "nc_model_switch", "nrt_tensor_allocate"),
    *("nrt_tensor_free", "tensor_block_while_exec", "dmem_buf_copyin", "dmem_buf_copyout"),
    *("dmem_buf_batch_copyin", "dmem_buf_batch_copyout", "nrt_dma_mem_alloc", "nrt_dma_mem_dealloc"),
    *("consume_tpb_status_notifications", "consume_cc_core_notifications", "consume_error_notifications"),
    *("consume_gpsimd_stdio", "hostcc_prepare", "hostcc_schedule", "hostcc_build_context", "hostcc_load"),
    *("hostcc_exec", "hostcc_wait"),
)
"""Name of each numeric event type of ``ntrace.pb``; the names of types above 35 are descriptive (grade R)."""

NRTA_SCHEDULE = "nrta_execute_schedule"
"""The asynchronous submit; without a number of its own, ``ntrace.pb`` has it as runtime_execute with nrta_seq_id."""

HARDWARE_NAMES = frozenset(
    {"nc_exec_running", "cc_running", "cc_exec_barrier", "numerical_err", "nc_model_switch", SYNC_POINT, "hw_notify"}
)
"""The hardware group; every other event is software."""

KINDS: Mapping[str, str] = {
    **dict.fromkeys(("nc_exec_running",), "execution"),
    **dict.fromkeys(("cc_running",), "collective"),
    **dict.fromkeys(("nrta_execute_schedule", "nrt_execute", "nrt_model_submit", "post_request"), "call"),
    **dict.fromkeys(("kbl_exec_pre", "kmgr_exec_core", "kbl_exec_post", "runtime_execute"), "call"),
    **dict.fromkeys(("kbl_exec_wait", "async_sema_wait", "cc_exec_barrier", "hostcc_wait"), "sync"),
    **dict.fromkeys(("enc_barrier_recv", "enc_barrier_send", "enc_barrier_both", "tensor_block_while_exec"), "sync"),
    **dict.fromkeys(("nrt_tensor_write", "nrt_tensor_write_batch", "dmem_buf_copyin"), "copy_in"),
    **dict.fromkeys(("dmem_buf_batch_copyin", "batch_copyin"), "copy_in"),
    **dict.fromkeys(("nrt_tensor_read", "nrt_tensor_read_batch", "dmem_buf_copyout"), "copy_out"),
    **dict.fromkeys(("dmem_buf_batch_copyout", "batch_copyout"), "copy_out"),
    **dict.fromkeys(("nrt_tensor_allocate", "nrt_tensor_free"), "memory"),
    **dict.fromkeys(("nrt_dma_mem_alloc", "nrt_dma_mem_dealloc"), "memory"),
    **dict.fromkeys(("model_load", "model_switch", "nc_model_switch", "cc_load"), "model"),
    **dict.fromkeys(("nrt_profile_add_node_info",), "model"),
    **dict.fromkeys(("generic", "numerical_err", "hw_notify", SYNC_POINT), "other"),
}
"""Kind of each event name; see ``kind_of`` for the names that come in families."""

CATEGORY_KINDS: Mapping[str, tuple[str, str]] = {
    "cpu_op": ("dispatch", "op"),
    "user_annotation": ("dispatch", "annotation"),
    "python_function": ("dispatch", "python"),
    "privateuse1_runtime": ("dispatch", "call"),
    "privateuse1_driver": ("stream", "call"),
}
"""Lane and kind of a framework row whose Kineto category is known."""

FRAMEWORK_SUFFIX = " [trace.json]"
"""Ends the name of a framework row, which repeats an event of the framework's own trace."""

CORE_KEYS = ("nc_idx", "lnc_idx")
PHYSICAL_KEYS = ("pcore_idx", "device_core_idx")
SEQUENCE_KEYS = ("nrta_seq_id", "nrt_sequence_id")
COPIES = ("copy_in", "copy_out")
FRAMEWORK_LANES = ("dispatch", "stream")

TEXT_KEYS = frozenset({"model_id", "neff_cache_key", "model_name", "name", "instance_id"})
"""Attributes that are text even where they look like a number."""

INT32_LIMIT, INT64_LIMIT, UINT64_LIMIT = 2**31, 2**63, 2**64


def kind_of(name: str) -> str:
    """Kind of a runtime event; names nobody has described are ``other``."""
    if name in KINDS:
        return KINDS[name]
    return "call" if name.startswith("hostcc_") else "other"


def is_known(name: str) -> bool:
    """Whether the name is one that is described; families: host collectives and notification readers."""
    return name in KINDS or name.startswith("hostcc_") or "consume_" in name


def lane_of(name: str) -> str:
    """``hardware`` for names of the hardware group, else ``runtime``."""
    return "hardware" if name in HARDWARE_NAMES else "runtime"


def framework_place(name: str, attributes: Attributes) -> tuple[str, str]:
    """Lane and kind of a framework row: by its Kineto category if it has one, else by what its attributes show."""
    category = attributes.get("cat") or attributes.get("category")
    if category in CATEGORY_KINDS and category != "privateuse1_runtime":
        return CATEGORY_KINDS[str(category)]
    if attributes.get("framework_stream_id") not in (None, ""):
        return ("stream", "call")
    if "synchronize" in name:
        return ("dispatch", "sync")
    if category == "privateuse1_runtime" or any(key in attributes for key in SEQUENCE_KEYS):
        return ("dispatch", "call")
    return ("dispatch", "annotation" if name.startswith("ProfilerStep#") else "op")


def integer(value: object) -> int | None:
    """A whole number that a source may spell as text (or as a float without fraction); else None."""
    if type(value) is int:
        return value
    if isinstance(value, str):
        digits = value[1:] if value.startswith("-") else value
        return int(value) if digits.isdecimal() and digits.isascii() and len(digits) <= 20 else None
    return int(value) if isinstance(value, float) and value.is_integer() else None


def int64(value: object) -> int | None:
    """A whole number that fits Int64, or None."""
    number = integer(value)
    return number if number is not None and -INT64_LIMIT <= number < INT64_LIMIT else None
