"""Workers on a Ray cluster: one actor a GPU that measures, tasks on CPUs that compile. Workers come and go.

Each actor keeps a measuring process of its own, so that a kernel that faults takes neither the actor nor its node. What
a lost actor was measuring is asked for again of another one; GPUs that join the cluster get an actor within seconds.
What CPU workers compile travels to the GPU's host as files of the build cache.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec

from tilewright.bench.backends.base import version_of
from tilewright.bench.device import Device, entry_of, read_device
from tilewright.bench.job import Job, Outcome
from tilewright.bench.process import MeasuringProcess
from tilewright.errors import InputError, MissingPartError, TilewrightError, shown
from tilewright.store.result import key_of
from tilewright.tune.build import CACHE_VARIABLE, cache_folder
from tilewright.tune.builders import COMMAND as BUILD_COMMAND
from tilewright.tune.builders import LIMIT_S as BUILD_LIMIT_S
from tilewright.tune.fleet import COMMAND, LIMIT_S, Done
from tilewright.tune.request import Request, job_of
from tilewright.tune.trials import Context

LOOK_S: Final = 1.0
"""How often the cluster is asked for GPUs that joined or left."""
MOST_TRIES: Final = 3
"""How often a trial is asked for again when its worker is lost; then the trial itself is the suspect."""
VERSIONS: Final = ("torch", "triton", "cuda-bindings")
"""Packages whose versions make times comparable (`tune/context.py`)."""
ASK_S: Final = 60.0
"""Time for a worker to start and tell which GPU it has."""
GRACE_S: Final = 30.0
"""Time beyond a trial's limit after which an actor that does not answer counts as lost."""


def _ray() -> Any:
    try:
        return import_module("ray")
    except ModuleNotFoundError:
        raise MissingPartError("Ray, which spreads trials over a cluster,", "ray") from None


def _connect(ray: Any, address: str) -> bool:
    """Join the cluster at `address` (`local` starts one here); whether it was this that connected."""
    if ray.is_initialized():
        return False
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        why = " ".join(str(error).split())[:200]
        msg = f"No Ray cluster answers at --ray {shown(address)} ({why}); give auto, local or HOST:PORT."
        raise InputError("ray", msg) from None
    return True


def packed(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Files of the cache below `names` (files or folders relative to it): relative path -> content."""
    found: dict[str, bytes] = {}
    for name in names:
        path = folder / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                found[str(file.relative_to(folder))] = file.read_bytes()
    return found


def unpack(folder: Path, files: dict[str, bytes]) -> None:
    """Put `files` into the cache of this host; what is there already is the same."""
    for name, content in files.items():
        path = folder / name
        # Names come from `packed` on another host of the same cluster; still, nothing is written elsewhere.
        if ".." in Path(name).parts or Path(name).is_absolute() or path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        temp = path.with_name(f".{path.name}.{os.getpid()}")
        temp.write_bytes(content)
        temp.replace(path)


def build_here(job: dict[str, Any], folder: str, command: Sequence[str] | None) -> tuple[bytes, dict[str, bytes]]:
    """A task on a CPU worker: (the outcome as JSON, files of the cache). The compiler runs in a process of its own."""
    os.environ[CACHE_VARIABLE] = folder
    with MeasuringProcess(command or (sys.executable, *BUILD_COMMAND[1:])) as process:
        outcome = process.ask(Job(backend="build", kind="build", problem=job), BUILD_LIMIT_S)
    names = outcome.figures.get("cached", [])
    return msgspec.json.encode(outcome), packed(Path(folder), names) if outcome.status == "ok" else {}


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where an actor measures. `device`, `driver` None: no driver tells."""

    label: str
    device: str | None = None
    driver: str | None = None
    versions: dict[str, str] = {}


def against(context: Context, place: Place) -> str | None:
    """Why what is measured at `place` cannot be kept beside the other trials of `context`; None where it can."""
    if place.device is None:  # the worker says it when it cannot measure
        return None
    if place.device != context.device_name:
        return f"it is a {place.device}, this run tunes for {context.device_name}"
    if place.driver != context.driver:
        return f"its driver is {place.driver}, this run's {context.driver}"
    for name, version in context.versions.items():
        if place.versions.get(name) != version:
            return f"it has {name} {place.versions.get(name) or 'not at all'}, this run {version}"
    return None


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU of the cluster as its own host tells it."""

    name: str
    capability: tuple[int, int]
    free_bytes: int | None
    driver: str | None


def gpu_here() -> bytes:
    """A task on a GPU worker: its GPU (`Told`), as JSON."""
    found = read_device(0)
    return msgspec.json.encode(
        Told(name=found.name, capability=found.capability, free_bytes=found.free_bytes, driver=found.driver)
    )


def cluster_gpu(address: str, ask: Callable[[], bytes] = gpu_here) -> Device:
    """A GPU of the cluster at `address`, for a run that is started on a host without one.

    Raises:
        MissingPartError: Ray is not installed.
        InputError: there is no such cluster, or none of its GPUs answers.
    """
    ray = _ray()
    connected = _connect(ray, address)
    try:
        count = int(ray.cluster_resources().get("GPU", 0))
        if count < 1:
            raise InputError("ray", f"The Ray cluster at {shown(address)} has no GPU; add a node that has one.")
        reference = ray.remote(num_gpus=1, num_cpus=0, max_retries=1)(ask).remote()
        try:
            told = msgspec.json.decode(ray.get(reference, timeout=ASK_S), type=Told)
        except ray.exceptions.RayError as error:
            why = " ".join(str(error).split())[-200:]
            raise InputError("ray", f"No GPU of the Ray cluster at {shown(address)} answers: {why}") from None
    finally:
        if connected:
            ray.shutdown()
    return Device(0, told.name, entry_of(told.name), told.capability, told.free_bytes, told.driver, count)


class Measurer:
    """An actor: the measuring process of one GPU."""

    def __init__(self, folder: str, command: Sequence[str] | None, kernel: tuple[str, bytes] | None) -> None:
        os.environ[CACHE_VARIABLE] = folder
        self._folder = Path(folder)
        if kernel is not None:
            unpack(self._folder, {kernel[0]: kernel[1]})
        self._process = MeasuringProcess(command or (sys.executable, *COMMAND[1:]))

    def where(self) -> bytes:
        """Host and GPU as this actor sees them (`Place`), as JSON."""
        label = f"{os.uname().nodename}/gpu{os.environ.get('CUDA_VISIBLE_DEVICES', '') or '0'}"
        found = {name: version for name in VERSIONS if (version := version_of(name))}
        try:
            device = read_device(0)
        except TilewrightError:
            return msgspec.json.encode(Place(label=label, versions=found))
        return msgspec.json.encode(Place(label=label, device=device.name, driver=device.driver, versions=found))

    def measure(self, job: bytes, limit_s: float, *builds: tuple[bytes, dict[str, bytes]]) -> bytes:
        """The outcome of one trial, as JSON."""
        for told, files in builds:
            outcome = msgspec.json.decode(told, type=Outcome)
            if outcome.status != "ok":
                return msgspec.json.encode(msgspec.structs.replace(outcome, status="failed"))
            unpack(self._folder, files)
        return msgspec.json.encode(self._process.ask(msgspec.json.decode(job, type=Job), limit_s))


class RayFleet:
    """Every GPU of a Ray cluster, those that join later too."""

    def __init__(
        self,
        address: str,
        builds_of: Callable[[Request], list[dict[str, Any]]] | None,
        *,
        kernel_file: str = "",
        command: Sequence[str] = COMMAND,
        limit_s: float = LIMIT_S,
        build_command: Sequence[str] | None = None,
        context: Context | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._ray = _ray()
        self._connected = _connect(self._ray, address)
        self.done: queue.Queue[Done | BaseException] = queue.Queue()
        self._folder = str(cache_folder())
        self._kernel_file, self._limit_s = kernel_file, limit_s
        self._command = None if tuple(command) == tuple(COMMAND) else tuple(command)
        self._build_command = build_command
        self._builds_of = builds_of
        self._made: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._tasks: queue.Queue[list[tuple[Request, int]]] = queue.Queue()
        self._closing = threading.Event()
        self._actors: dict[int, Any] = {}
        self._context, self._tell = context, tell
        self._able = False
        self.left_out: list[str] = []
        self._idle: list[Any] = []
        """Actors on GPUs that are left out: they hold them, so that no other one starts there again and again."""
        self._next = 0
        self.lost = 0
        self._actor = self._ray.remote(num_gpus=1, num_cpus=0, max_restarts=0)(Measurer)
        self._task = self._ray.remote(num_cpus=1, max_retries=3)(build_here)
        gpus = self._gpus()
        if gpus < 1:
            self.close()
            raise InputError("ray", f"The Ray cluster at {shown(address)} has no GPU; add a node that has one.")
        self._grow()
        self._watch = threading.Thread(target=self._look, name="ray-watch", daemon=True)
        self._watch.start()

    @property
    def width(self) -> int:
        with self._lock:
            return max(1, len(self._actors))

    def _gpus(self) -> int:
        return int(self._ray.cluster_resources().get("GPU", 0))

    def _grow(self) -> None:
        """As many actors as there are GPUs; those that are lost were taken off before."""
        kernel: tuple[str, bytes] | None = None
        if self._kernel_file:
            path = Path(self._kernel_file)
            kernel = (str(path.relative_to(self._folder)), path.read_bytes())
        with self._lock:
            for _ in range(self._gpus() - len(self._actors) - len(self._idle)):
                actor = self._actor.remote(self._folder, self._command, kernel)
                number, self._next = self._next, self._next + 1
                self._actors[number] = actor
                threading.Thread(target=self._work, args=(number, actor), name=f"ray{number}", daemon=True).start()

    def _look(self) -> None:
        while not self._closing.wait(LOOK_S):
            try:
                self._grow()
            except Exception as error:  # the cluster itself is gone
                if not self._closing.is_set():
                    self.done.put(error)
                return

    def _builds(self, request: Request) -> list[Any]:
        """References to what CPU workers compile for `request`, each once."""
        if self._builds_of is None:
            return []
        found: list[Any] = []
        for job in self._builds_of(request):
            key = key_of(job)
            with self._lock:
                if key not in self._made:
                    self._made[key] = self._task.remote(job, self._folder, self._build_command)
                found.append(self._made[key])
        return found

    def prepare(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self._builds(request)

    def give(self, requests: Sequence[Request], *, together: bool = False) -> None:
        self.prepare(requests)
        if together:
            self._tasks.put([(request, 0) for request in requests])
        else:
            for request in requests:
                self._tasks.put([(request, 0)])

    def _work(self, number: int, actor: Any) -> None:
        """Feed one actor until the run ends or the actor is lost."""
        try:
            place = msgspec.json.decode(self._ray.get(actor.where.remote()), type=Place)
        except Exception:  # it never came to life: its GPU is gone again
            self._drop(number)
            return
        why = against(self._context, place) if self._context is not None else None
        if why is not None:
            self._leave_out(number, f"{place.label} does not take part: {why}.")
            return
        self._able = True
        name = f"{place.label}#{number}"
        while not self._closing.is_set():
            try:
                task = self._tasks.get(timeout=0.5)
            except queue.Empty:
                continue
            while task:
                request, tries = task[0]
                outcome = self._ask(actor, request)
                if self._closing.is_set():
                    return
                if outcome is None:
                    self.lost += 1
                    if tries + 1 >= MOST_TRIES:
                        outcome = Outcome(
                            status="failed", note="three workers were lost on it", figures={"fault": "crash"}
                        )
                        self._report(task.pop(0)[0], outcome, name)
                    else:
                        task[0] = (request, tries + 1)
                    if task:
                        self._tasks.put(task)
                    self._drop(number)
                    return
                task.pop(0)
                if not self._report(request, outcome, name):
                    return

    def _report(self, request: Request, outcome: Outcome, name: str) -> bool:
        """Hand an outcome on and wait until it is kept; False where the run is closing."""
        done = Done(request, outcome, name)
        self.done.put(done)
        while not done.kept.wait(0.5):
            if self._closing.is_set():
                return False
        return True

    def _ask(self, actor: Any, request: Request) -> Outcome | None:
        """The outcome, or None where the actor is lost."""
        job = msgspec.json.encode(job_of(request, 0, self._kernel_file))
        builds = self._builds(request)
        try:
            self._ray.wait(builds, num_returns=len(builds), timeout=BUILD_LIMIT_S * 2) if builds else None
            told = self._ray.get(actor.measure.remote(job, self._limit_s, *builds), timeout=self._limit_s + GRACE_S)
        except self._ray.exceptions.RayTaskError as error:
            return Outcome(status="failed", note=str(error).splitlines()[-1][:200], figures={"fault": "error"})
        except Exception:  # the actor, its node or the connection is gone, or it does not answer
            return None
        return msgspec.json.decode(told, type=Outcome)

    def _leave_out(self, number: int, why: str) -> None:
        """Times of another GPU, driver or compiler are not those of this run."""
        with self._lock:
            self._idle.append(self._actors.pop(number))
            self.left_out.append(why)
            nobody = not self._actors and not self._able
        self._tell(why)
        if nobody:
            self.done.put(InputError("ray", "No GPU of the cluster can take part: " + " ".join(self.left_out)))

    def _drop(self, number: int) -> None:
        with self._lock:
            actor = self._actors.pop(number, None)
        if actor is not None:
            with contextlib.suppress(Exception):
                self._ray.kill(actor)

    def close(self) -> None:
        self._closing.set()
        with self._lock:
            actors = [*self._actors.values(), *self._idle]
            self._actors.clear()
        for actor in actors:
            with contextlib.suppress(Exception):
                self._ray.kill(actor)
        if self._connected:
            self._ray.shutdown()
