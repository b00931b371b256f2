"""Computes the ids of docs/deterministic_ids.md a second time, from their description alone.

Reads the document on standard input and prints one line per vector: the namespace's row as `computed published`.
Exits with 1 where one differs. Python 3, standard library only.
"""

import hashlib
import json
import sys

DOMAIN = b"idempotency/deterministic-id/1\0"


def item(tag, data):
    return bytes([tag]) + len(data).to_bytes(8, "big") + data


def encoded(part):
    if isinstance(part, bool):  # before int, of which it is a subclass
        return item(5, bytes([part]))
    if isinstance(part, str):
        return item(1, part.encode("utf-8"))
    if isinstance(part, int):
        return item(2, part.to_bytes(16, "big", signed=True))
    if "bytes" in part:
        return item(3, bytes.fromhex(part["bytes"]))
    return item(4, bytes.fromhex(part["uuid"].replace("-", "")))


def uuid(namespace, parts):
    data = DOMAIN + item(0, namespace.encode("utf-8")) + b"".join(encoded(part) for part in parts)
    digest = bytearray(hashlib.sha256(data).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def main():
    document = sys.stdin.buffer.read().decode("utf-8")
    wrong = 0
    for line in document.splitlines():
        if line.startswith("| `"):
            _, namespace, _, parts, _, published, _ = line.split("`")
            computed = uuid(namespace, json.loads(parts))
            print(computed, published)
            wrong += computed != published
    return 1 if wrong else 0


sys.exit(main())
