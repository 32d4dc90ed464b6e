"""A client that asks one server as fast as it answers; in a process of its own.

python -m benchmarks.load PORT CLIENTS REQUESTS FILE...   (each file is the body of a request)
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from pathlib import Path

_HEAD = (
    "POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n"
)


async def ask(
    port: int, requests: list[bytes], numbers: itertools.count[int], most: int
) -> list[float]:
    """One client: a request as soon as the last is answered, until all are asked."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times = []
    while (number := next(numbers)) < most:
        start = time.perf_counter()
        writer.write(requests[number % len(requests)])
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")
        if " 200 " not in lines[0] + " ":
            raise SystemExit(f"the server answered {lines[0]}")
        length = next(int(line.partition(":")[2]) for line in lines if "content-length" in line)
        await reader.readexactly(length)
        times.append(time.perf_counter() - start)
    writer.close()
    return times


async def main(port: int, clients: int, most: int, files: list[str]) -> None:
    requests = []
    for file in files:
        body = Path(file).read_bytes()
        edge = body.partition(b"\r\n")[0][2:].decode(errors="replace")
        kind = "image/png" if body[1:4] == b"PNG" else f"multipart/form-data; boundary={edge}"
        requests.append(_HEAD.format(kind, len(body)).encode() + body)
    numbers = itertools.count()
    start = time.perf_counter()
    found = await asyncio.gather(*(ask(port, requests, numbers, most) for _ in range(clients)))
    seconds = time.perf_counter() - start
    times = sorted(itertools.chain.from_iterable(found))
    place = [times[int(share * (len(times) - 1))] for share in (0.5, 0.99)]
    print(json.dumps({"rate": len(times) / seconds, "p50": place[0], "p99": place[1]}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
