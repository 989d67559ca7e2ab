"""The devices, one row each: dense peaks, memory, links, and where the numbers come from.

Bandwidths are per direction and device. Sizes are decimal (1 GB = 1e9 bytes), which is what
vendors print; where a source gives a range, the row has its low end.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxbench.errors import InputError, unknown

DEFAULT_MFU = 0.40  # where no range is known
MFU_SOURCE = "typical of published training runs, collected for this table"
UNVERIFIED = "unverified"

# dtype -> field that holds its peak; float32 matmuls use TF32 where a device has it
_PEAK_FIELDS: dict[str, str] = {
    "float32": "tf32_FLOPs",
    "bfloat16": "bfloat16_FLOPs",
    "float16": "bfloat16_FLOPs",
    "float8_e4m3fn": "float8_FLOPs",
    "float8_e5m2": "float8_FLOPs",
}


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One device (one GCD of an MI250X, one chip of a TPU). None: not known or not there."""

    name: str
    source: str
    unverified: tuple[str, ...] = ()  # fields from general knowledge, not looked up

    bfloat16_FLOPs: float  # per second, dense; float16 has the same
    float8_FLOPs: float | None = None
    tf32_FLOPs: float | None = None
    memory_bytes: int
    memory_Bps: float
    scale_up_Bps: float  # all links to the node's or domain's other devices together
    scale_up_peer_Bps: float | None = None  # to one peer, where links are point to point
    nic_Bps: float | None = None  # the device's share of the network cards
    mfu: tuple[float, float] | None = None  # typical range of model FLOPs utilisation

    dlnetbench_FLOPs: float | None = None  # the peaks DLNetBench computes with
    dlnetbench_memory_Bps: float | None = None

    def source_of(self, field: str) -> str:
        """Where the number in `field` comes from; 'unverified' says that nobody looked it up."""
        if field in self.unverified:
            return UNVERIFIED
        if field == "mfu":
            return MFU_SOURCE
        return DLNETBENCH_SOURCE if field.startswith("dlnetbench_") else self.source

    def peak_FLOPs(self, dtype: str) -> float | None:
        """Dense matmul FLOP/s of `dtype` (a JAX name); None where the row has no number."""
        return getattr(self, _PEAK_FIELDS[dtype])

    def dtypes(self) -> tuple[str, ...]:
        """The dtypes this row has a peak for."""
        return tuple(dtype for dtype in _PEAK_FIELDS if self.peak_FLOPs(dtype) is not None)

    @property
    def default_mfu(self) -> float:
        """The middle of the range, DEFAULT_MFU where there is none."""
        return sum(self.mfu) / 2 if self.mfu else DEFAULT_MFU


DLNETBENCH_SOURCE = "peaks used by DLNetBench (described in arXiv 2609.00817)"
_NVIDIA = "NVIDIA {} data sheet, as used in DLNetBench"
_TPU = "docs.cloud.google.com/tpu"

HARDWARE: dict[str, Hardware] = {
    "a100_40": Hardware(
        name="a100_40",
        source=_NVIDIA.format("A100-SXM4 40 GB and DGX A100"),
        bfloat16_FLOPs=312e12,
        tf32_FLOPs=156e12,
        memory_bytes=40 * 10**9,
        memory_Bps=1.555e12,
        scale_up_Bps=300e9,
        nic_Bps=25e9,
        mfu=(0.40, 0.52),
        dlnetbench_FLOPs=312e12,
        dlnetbench_memory_Bps=2.0e12,
    ),
    "a100_80": Hardware(
        name="a100_80",
        source=_NVIDIA.format("A100-SXM4 80 GB and DGX A100"),
        bfloat16_FLOPs=312e12,
        tf32_FLOPs=156e12,
        memory_bytes=80 * 10**9,
        memory_Bps=2.04e12,
        scale_up_Bps=300e9,
        nic_Bps=25e9,
        mfu=(0.40, 0.52),
        dlnetbench_FLOPs=312e12,
        dlnetbench_memory_Bps=2.0e12,
    ),
    "a100_64": Hardware(  # Leonardo's custom A100
        name="a100_64",
        source="leonardo-supercomputer.cineca.eu/hpc-system",
        unverified=("memory_Bps",),
        bfloat16_FLOPs=312e12,
        tf32_FLOPs=156e12,
        memory_bytes=64 * 10**9,
        memory_Bps=1.64e12,
        scale_up_Bps=300e9,
        scale_up_peer_Bps=100e9,
        nic_Bps=12.5e9,
        mfu=(0.35, 0.50),
        dlnetbench_FLOPs=312e12,
        dlnetbench_memory_Bps=2.0e12,
    ),
    "h100": Hardware(
        name="h100",
        source=_NVIDIA.format("H100 SXM"),
        bfloat16_FLOPs=989e12,
        float8_FLOPs=1979e12,
        tf32_FLOPs=494e12,
        memory_bytes=80 * 10**9,
        memory_Bps=3.35e12,
        scale_up_Bps=450e9,
        nic_Bps=50e9,
        mfu=(0.38, 0.47),
    ),
    "h200": Hardware(
        name="h200",
        source=_NVIDIA.format("H200 SXM"),
        bfloat16_FLOPs=989e12,
        float8_FLOPs=1979e12,
        tf32_FLOPs=494e12,
        memory_bytes=141 * 10**9,
        memory_Bps=4.8e12,
        scale_up_Bps=450e9,
        nic_Bps=50e9,
        mfu=(0.40, 0.47),
    ),
    "gh200": Hardware(  # JUPITER, Alps
        name="gh200",
        source="NVIDIA GH200 data sheet; apps.fz-juelich.de jupiter/configuration",
        bfloat16_FLOPs=990e12,
        float8_FLOPs=1979e12,
        tf32_FLOPs=494e12,
        memory_bytes=96 * 10**9,
        memory_Bps=4.0e12,
        scale_up_Bps=450e9,
        scale_up_peer_Bps=150e9,
        nic_Bps=25e9,
        mfu=(0.35, 0.45),
        dlnetbench_FLOPs=990e12,
        dlnetbench_memory_Bps=4.0e12,
    ),
    "mi250x_gcd": Hardware(  # LUMI: half a module is one device
        name="mi250x_gcd",
        source="lumi-userguide docs/hardware",
        bfloat16_FLOPs=191.5e12,
        memory_bytes=64 * 10**9,
        memory_Bps=1.6e12,
        scale_up_Bps=200e9,  # to the other half of the module, the widest link
        scale_up_peer_Bps=50e9,  # to other modules: 50 to 100
        nic_Bps=12.5e9,
        mfu=(0.30, 0.38),
        dlnetbench_FLOPs=192e12,
        dlnetbench_memory_Bps=1.6e12,
    ),
    "b200": Hardware(
        name="b200",
        source=_NVIDIA.format("B200"),
        bfloat16_FLOPs=2250e12,
        float8_FLOPs=4500e12,
        tf32_FLOPs=1125e12,
        memory_bytes=180 * 10**9,  # 180 to 192, by product
        memory_Bps=8.0e12,
        scale_up_Bps=900e9,
        nic_Bps=50e9,
        mfu=(0.35, 0.45),
        dlnetbench_FLOPs=2250e12,
        dlnetbench_memory_Bps=8.0e12,
    ),
    "gb200": Hardware(
        name="gb200",
        source=_NVIDIA.format("GB200"),
        bfloat16_FLOPs=2500e12,
        float8_FLOPs=5000e12,
        tf32_FLOPs=1250e12,
        memory_bytes=186 * 10**9,
        memory_Bps=8.0e12,
        scale_up_Bps=900e9,
        nic_Bps=50e9,  # 50 to 100, by system
        mfu=(0.35, 0.45),
    ),
    "gb300": Hardware(
        name="gb300",
        source=_NVIDIA.format("GB300"),
        bfloat16_FLOPs=2500e12,
        float8_FLOPs=5000e12,
        tf32_FLOPs=1250e12,
        memory_bytes=288 * 10**9,
        memory_Bps=8.0e12,
        scale_up_Bps=900e9,
        nic_Bps=100e9,
        dlnetbench_FLOPs=2400e12,
        dlnetbench_memory_Bps=8.0e12,
    ),
    "tpu_v4": Hardware(
        name="tpu_v4",
        source=_TPU,
        unverified=("bfloat16_FLOPs", "memory_bytes", "memory_Bps", "scale_up_Bps"),
        bfloat16_FLOPs=275e12,
        memory_bytes=32 * 10**9,
        memory_Bps=1.2e12,
        scale_up_Bps=150e9,
        mfu=(0.50, 0.60),
    ),
    "tpu_v5e": Hardware(
        name="tpu_v5e",
        source=_TPU,
        bfloat16_FLOPs=197e12,
        memory_bytes=16 * 10**9,
        memory_Bps=0.82e12,
        scale_up_Bps=200e9,
        mfu=(0.50, 0.60),
    ),
    "tpu_v5p": Hardware(
        name="tpu_v5p",
        source=_TPU,
        bfloat16_FLOPs=459e12,
        memory_bytes=95 * 10**9,
        memory_Bps=2.77e12,
        scale_up_Bps=600e9,
        nic_Bps=6.25e9,
        mfu=(0.50, 0.60),
    ),
    "tpu_v6e": Hardware(
        name="tpu_v6e",
        source=_TPU,
        bfloat16_FLOPs=918e12,
        memory_bytes=32 * 10**9,
        memory_Bps=1.64e12,
        scale_up_Bps=400e9,
        mfu=(0.50, 0.60),
    ),
    "cpu": Hardware(  # one of four virtual devices of XLA that share two cores
        name="cpu",
        source=UNVERIFIED,
        bfloat16_FLOPs=50e9,  # computed as float32
        tf32_FLOPs=50e9,  # 32 a cycle (AVX2) at 3 GHz, halved
        memory_bytes=2 * 10**9,
        memory_Bps=5e9,
        scale_up_Bps=5.5e9,  # copies within the host's memory
    ),
}


def find_hardware(name: str) -> Hardware:
    """Return the row `name`; an unknown name is an InputError that lists the known ones."""
    if name not in HARDWARE:
        raise InputError(unknown("hardware", name, HARDWARE))
    return HARDWARE[name]
