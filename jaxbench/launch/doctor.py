"""Checks of an installation: what is wrong here, and what to do about it.

Nothing of JAX is imported by this process; what JAX can do is found out by children (probe.py).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import jaxbench
from jaxbench.data import data_folder
from jaxbench.launch.environment import additions
from jaxbench.launch.findings import Finding
from jaxbench.launch.probe import Probe, finish_probe, start_probe, stop_probe
from jaxbench.launch.settings import check_cores, check_memory, check_settings
from jaxbench.measure.record import writable_faults
from jaxbench.units import format_bytes

PYTHON = (3, 11)
JAX = ((0, 10, 2), (0, 12))  # from the first on, below the second, as in pyproject.toml
NEEDED = ("numpy", "scipy", "rich", "absl-py", "clustershell", "pyyaml")
PLUGIN = re.compile(r"jax-(cuda|rocm)\d*-(plugin|pjrt)")

VIRTUAL_DEVICES = 4
PROBE_LIMIT_S = 120.0  # a node of GPUs may need half a minute
LITTLE_DISK_BYTES = 1e9

# Device files of accelerators, and the packages with which JAX uses them.
ACCELERATORS = {
    "/dev/nvidiactl": ("an NVIDIA GPU", "pip install 'jax[cuda12]'"),
    "/dev/kfd": ("an AMD GPU", "pip install 'jax[rocm7-local]'"),
    "/dev/accel0": ("a TPU", "pip install 'jax[tpu]'"),
}

FILES = {"flags": "*.flags", "meshes": "*.toml"}
PACKAGED = ("payload/sleep.cc", "readings/gpu_targets/h100.txtpb", "py.typed")


def examine(out: str, limit_s: float = PROBE_LIMIT_S) -> list[Finding]:
    """Return all findings about this installation, results going to `out`.

    Takes as long as JAX needs to start twice at a time, and at most `limit_s` for that.
    """
    env = dict(os.environ)
    deadline = time.monotonic() + limit_s
    ours = {**env, **additions(env)}
    cpu = {**without_device_count(ours), "JAX_PLATFORMS": "cpu"}
    backend = start_probe(ours)
    virtual = start_probe(cpu, virtual_devices=VIRTUAL_DEVICES)
    try:
        cores = check_cores()  # before the children have run for long: they are a load themselves
        packages = installed()
        return [
            *check_versions(packages),
            *check_plugins(packages),
            *check_backend(finish_probe(backend, deadline), env),
            *check_virtual(finish_probe(virtual, deadline)),
            *check_data(),
            *check_results(out),
            *check_settings(env, packages),
            *check_memory(),
            *cores,
        ]
    finally:
        stop_probe(backend)
        stop_probe(virtual)


def without_device_count(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the user's number of CPU devices."""
    flags = re.sub(r"--xla_force_host_platform_device_count\S*", "", env.get("XLA_FLAGS", ""))
    kept = {name: value for name, value in env.items() if name != "JAX_NUM_CPU_DEVICES"}
    return {**kept, "XLA_FLAGS": flags.strip()}


def installed() -> dict[str, str]:
    """Return the versions of all installed packages, by name in lower case with hyphens."""
    found: dict[str, str] = {}
    for package in metadata.distributions():
        name = package.metadata["Name"]
        if name:  # a damaged one has none
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), package.version)
    return found


def check_versions(
    packages: Mapping[str, str], python: tuple[int, ...] = sys.version_info[:3]
) -> list[Finding]:
    """Check Python, JAX and jaxlib against what is supported, and that nothing is missing."""
    findings = []
    text = ".".join(map(str, python))
    if python < PYTHON:
        need = ".".join(map(str, PYTHON))
        findings.append(Finding("python", "wrong", text, f"install Python {need} or newer"))
    else:
        findings.append(Finding("python", "ok", text))
    wanted = "jax>={}.{}.{},<{}.{}".format(*JAX[0], *JAX[1])
    jax, jaxlib = packages.get("jax"), packages.get("jaxlib")
    if jax is None:
        findings.append(Finding("jax", "wrong", "not installed", f"pip install '{wanted}'"))
    elif not JAX[0] <= _release(jax) < JAX[1]:
        remedy = f"pip install '{wanted}': what XLA does to collectives is checked for these"
        findings.append(Finding("jax", "wrong", jax, remedy))
    else:
        findings.append(Finding("jax", "ok", jax))
    remedy = f"pip install jaxlib=={jax}" if jax else "install it together with jax"
    if jaxlib is None or (jax is not None and _release(jaxlib) > _release(jax)):
        found = f"{jaxlib or 'not installed'}, beside jax {jax}"
        findings.append(Finding("jaxlib", "wrong", found, remedy))
    elif jax is not None and _release(jaxlib) < _release(jax):
        findings.append(Finding("jaxlib", "warning", f"{jaxlib}, older than jax", remedy))
    else:
        findings.append(Finding("jaxlib", "ok", jaxlib))
    missing = [name for name in NEEDED if name not in packages]
    if missing:
        remedy = f"pip install {' '.join(missing)}"
        findings.append(Finding("packages", "wrong", f"without {', '.join(missing)}", remedy))
    else:
        named = ", ".join(f"{name} {packages[name]}" for name in NEEDED)
        findings.append(Finding("packages", "ok", named))
    return findings


def check_plugins(packages: Mapping[str, str]) -> list[Finding]:
    """Check that JAX's plugins for accelerators are of jaxlib's version: others are left out."""
    check, jaxlib = "plugins", packages.get("jaxlib", "")
    plugins = {name: version for name, version in packages.items() if PLUGIN.fullmatch(name)}
    wrong = [n for n, version in plugins.items() if _release(version) != _release(jaxlib)]
    if wrong:
        found = ", ".join(f"{name} {plugins[name]}" for name in wrong)
        remedy = f"pip install {' '.join(f'{name}=={jaxlib}' for name in wrong)}"
        return [Finding(check, "warning", f"{found}, beside jaxlib {jaxlib}", remedy)]
    shown = {**plugins, **{n: v for n, v in packages.items() if n.startswith("libtpu")}}
    named = ", ".join(f"{name} {version}" for name, version in shown.items())
    return [Finding(check, "ok", named or "none: JAX runs on CPU")]


def check_backend(
    probe: Probe, env: Mapping[str, str], accelerators: Mapping[str, tuple[str, str]] = ACCELERATORS
) -> list[Finding]:
    """Check that JAX starts as it is set, on the devices of this machine, and can add on them."""
    stage = probe.failed_stage
    if stage in ("import", "backend"):
        remedy = {
            "import": "install jax and jaxlib again, of one version",
            "backend": "mend what it names; JAX_PLATFORMS=cpu runs without accelerators",
        }[stage]
        what = "jax can't be imported" if stage == "import" else "JAX doesn't start"
        return [Finding("backend", "wrong", f"{what}: {probe.failure}", remedy)]
    found = probe.stages["backend"]
    platform, count = found["platform"], found["devices"]
    text = f"{platform}: {count} x {', '.join(found['kinds'])}"
    unused = [what for path, what in accelerators.items() if Path(path).exists()]
    if platform == "cpu" and unused and not env.get("JAX_PLATFORMS"):
        what, install = unused[0]
        findings = [Finding("backend", "warning", f"{text}, though there is {what}", install)]
    else:
        findings = [Finding("backend", "ok", text)]
    return [*findings, check_psum("psum", probe, f"right on {count} of {count} devices")]


def check_psum(check: str, probe: Probe, right: str) -> Finding:
    """Return whether a sum over all devices came out right on each; `right` says that it did."""
    if "psum" not in probe.stages:
        remedy = "look for a driver or a library of collectives that doesn't fit"
        return Finding(check, "wrong", f"a sum over all devices failed: {probe.failure}", remedy)
    sums = probe.stages["psum"]
    if sums["wrong"]:
        held = ", ".join(f"{value:g} on device {d}" for d, value in sums["wrong"].items())
        remedy = "don't measure on this machine before that is mended"
        return Finding(check, "wrong", f"the sum {sums['wanted']:g} came out as {held}", remedy)
    return Finding(check, "ok", right)


def check_virtual(probe: Probe) -> list[Finding]:
    """Check virtual CPU devices, and the native sleep that keeps time on them."""
    stage, check = probe.failed_stage, "virtual devices"
    if stage in ("import", "backend"):
        remedy = "see 'backend'; without them only real devices can be used"
        return [Finding(check, "wrong", probe.failure, remedy)]
    count = probe.stages["backend"]["devices"]
    if count != VIRTUAL_DEVICES:
        remedy = "look for settings of JAX in files or a sitecustomize"
        found = f"asked for {VIRTUAL_DEVICES}, got {count}"
        return [Finding(check, "wrong", found, remedy)]
    findings = [check_psum(check, probe, f"{count} work, psum right on each")]
    if findings[0].state != "ok":
        return findings
    if stage == "native":
        remedy = "use --payload=matmul"
        return [*findings, Finding("native sleep", "wrong", probe.failure, remedy)]
    native = probe.stages["native"]
    if native["missing"]:
        remedy = "install a C++ compiler, or name one in CXX: sleeping by callback is less exact"
        findings.append(Finding("compiler", "warning", native["missing"], remedy))
    else:
        findings.append(Finding("compiler", "ok", native["compiler"]))
    if native["available"]:
        findings.append(Finding("native sleep", "ok", f"built, in {native['cache']}"))
    elif not native["missing"]:
        remedy = "mend the compiler, or name another one in CXX"
        findings.append(Finding("native sleep", "warning", native["reason"], remedy))
    return findings


def check_data() -> list[Finding]:
    """Check that the files which come with jaxbench are there."""
    check, remedy = "data files", "install jaxbench again"
    counts, package = {}, Path(jaxbench.__file__).parent
    for kind, pattern in FILES.items():
        try:
            counts[kind] = len(list(data_folder(kind).glob(pattern)))
        except FileNotFoundError as error:
            return [Finding(check, "wrong", str(error), remedy)]
    lacking = [kind for kind, count in counts.items() if not count]
    lacking += [name for name in PACKAGED if not (package / name).is_file()]
    if lacking:
        return [Finding(check, "wrong", f"missing: {', '.join(lacking)}", remedy)]
    named = ", ".join(f"{kind} {count}" for kind, count in counts.items())
    return [Finding(check, "ok", f"{named}, in {package}")]


def check_results(out: str) -> list[Finding]:
    """Check that results can be written, and that there is room for them."""
    check = "results"
    if faults := writable_faults(out):
        return [Finding(check, "wrong", faults[0], "name another folder with --out")]
    place = Path(out).absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < LITTLE_DISK_BYTES:
        return [Finding(check, "warning", f"'{out}': {format_bytes(free)} free", "make room")]
    return [Finding(check, "ok", f"'{out}' can be written, {format_bytes(free)} free")]


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, without what follows them, as in 0.10.2.dev1+cuda."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split(".")))[:3] if match else ()
