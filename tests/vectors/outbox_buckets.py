"""Computes the buckets of docs/outbox_buckets.md a second time, from their description alone.

Reads the document on standard input and prints one line per vector: `computed published`. Exits with 1 where one differs.
Python 3, standard library only.
"""

import hashlib
import json
import sys

DOMAIN = b"idempotency/outbox-bucket/1\0"


def bucket(destination, key, event_id):
    name = destination.encode("utf-8")
    data = DOMAIN + len(name).to_bytes(8, "big") + name
    if key is None:
        data += b"\0" + bytes.fromhex(event_id.replace("-", ""))
    else:
        data += b"\1" + key.encode("utf-8")
    return hashlib.sha256(data).digest()[0] >> 2


def main():
    document = sys.stdin.buffer.read().decode("utf-8")
    wrong = 0
    for line in document.splitlines():
        if line.startswith("| `"):
            _, destination, _, key, _, event_id, rest = line.split("`")
            computed, published = bucket(json.loads(destination), json.loads(key), event_id), rest.strip(" |")
            print(computed, published)
            wrong += str(computed) != published
    return 1 if wrong else 0


sys.exit(main())
