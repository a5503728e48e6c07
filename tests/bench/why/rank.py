"""One rank of a small job on the CPU, annotated for nsys; run by `capture.sh`.

Rank 1 is slow in `load` for one planted reason, in the iterations that are no multiple of 5. An
all-reduce over sockets blocks the others until it comes.

Usage: RANK=r WORLD_SIZE=4 python rank.py ITERATIONS PLANT
"""

import contextlib
import ctypes
import gc
import mmap
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import nvtx

RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SLOW_RANK, PLANT_S, EVERY, PORT = 1, 0.025, 5, 29533
BLOCK, HUGE = b"x" * (1 << 20), 64 << 20


class Group:
    """Rank 0 collects a byte of each rank, and answers when all have come."""

    def __init__(self) -> None:
        """Connect the ranks."""
        self.peers: list[socket.socket] = []
        if RANK == 0:
            with socket.create_server(("127.0.0.1", PORT)) as server:
                self.peers = [server.accept()[0] for _ in range(WORLD_SIZE - 1)]
            return
        while True:
            with contextlib.suppress(OSError):
                self.root = socket.create_connection(("127.0.0.1", PORT))
                return
            time.sleep(0.1)

    def all_reduce(self) -> None:
        """Return when all ranks have called it."""
        if RANK:
            self.root.send(b"x")
            self.root.recv(1)
            return
        for peer in self.peers:
            peer.recv(1)
        for peer in self.peers:
            peer.send(b"x")


def spin(seconds: float) -> None:
    """Compute for some time."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def tokenize_documents(count: int) -> int:
    """A hot function."""
    total = 0
    for number in range(count):
        total += number * number % 7
    return total


def fsync() -> Callable[[], None]:
    """Checkpoints."""

    def act() -> None:
        until = time.perf_counter() + PLANT_S
        with Path(f"checkpoint.{RANK}").open("wb") as file:
            while time.perf_counter() < until:
                file.write(BLOCK)
                file.flush()
                os.fsync(file.fileno())

    return act


def read() -> Callable[[], None]:
    """Data whose pages are not in the cache."""
    path, buffer = Path("data.bin"), bytearray(16 << 20)
    with path.open("wb") as file:
        file.write(buffer)
        file.flush()
        os.fsync(file.fileno())

    def act() -> None:
        until = time.perf_counter() + PLANT_S
        with path.open("rb", buffering=0) as file:
            while time.perf_counter() < until:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                file.seek(0)
                file.readinto(buffer)

    return act


def mapped() -> Callable[[], None]:
    """Pages of a mapped file that are not in the cache."""
    path = Path("mapped.bin")
    with path.open("wb") as file:
        file.write(bytes(HUGE))
        file.flush()
        os.fsync(file.fileno())

    def act() -> None:
        until = time.perf_counter() + PLANT_S
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
                pages.madvise(mmap.MADV_RANDOM)
                for at in range(0, HUGE, mmap.PAGESIZE):
                    if time.perf_counter() > until:
                        break
                    pages[at]

    return act


def lock() -> Callable[[], None]:
    """A lock that another thread holds."""
    held, turn, done = threading.Lock(), threading.Event(), threading.Event()

    def holder() -> None:
        while True:
            turn.wait()
            turn.clear()
            with held:
                done.set()
                time.sleep(PLANT_S)

    threading.Thread(target=holder, daemon=True).start()

    def act() -> None:
        done.clear()
        turn.set()
        done.wait()
        with held:
            pass

    return act


def sleep() -> Callable[[], None]:
    """A pause."""
    return lambda: time.sleep(PLANT_S)


def hot() -> Callable[[], None]:
    """A function that takes PLANT_S."""
    began = time.perf_counter()
    tokenize_documents(200_000)
    count = int(200_000 * PLANT_S / (time.perf_counter() - began))

    def act() -> None:
        tokenize_documents(count)

    return act


def collect() -> Callable[[], None]:
    """A garbage collection over so many objects that it takes PLANT_S."""
    kept: list[list[list[int]]] = []
    while True:
        began = time.perf_counter()
        gc.collect()
        if time.perf_counter() - began > PLANT_S:
            break
        kept.append([[] for _ in range(50_000)])

    def act() -> None:
        gc.collect()
        assert kept

    return act


def malloc() -> Callable[[], None]:
    """Huge arrays, filled and freed."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]

    def act() -> None:
        until = time.perf_counter() + PLANT_S
        while time.perf_counter() < until:
            array = libc.malloc(HUGE)
            libc.memset(array, 1, HUGE)
            libc.free(array)

    return act


def nothing() -> Callable[[], None]:
    """No plant, or one that acts from outside."""
    return lambda: None


PLANTS = {each.__name__: each for each in (fsync, read, mapped, lock, sleep, hot, malloc)}
OUTSIDE = ("preempted", "quota")
"""Plants that act from outside and disturb a thread that computes: all ranks do."""


def main(iterations: int, plant: str) -> None:
    """Train."""
    act = nothing()
    if RANK == SLOW_RANK:
        act = {**PLANTS, "gc": collect}.get(plant, nothing)()
    gc.disable()
    pause = (lambda _: None) if plant in OUTSIDE else time.sleep
    group = Group()
    group.all_reduce()
    if plant == "preempted":
        os.sched_setaffinity(0, {0 if RANK == SLOW_RANK else 1})
    for number in range(iterations):
        with nvtx.annotate(f"step {number}"):
            with nvtx.annotate("load"):
                pause(0.004)
                if plant in OUTSIDE:
                    spin(0.004)
                elif number % EVERY:
                    act()
            with nvtx.annotate("forward"):
                spin(0.001)
                pause(0.003)
            with nvtx.annotate("backward"):
                spin(0.001)
                pause(0.004)
            with nvtx.annotate("all_reduce"):
                group.all_reduce()
            with nvtx.annotate("optimizer"):
                spin(0.0005)
    group.all_reduce()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
