"""Checks one file of rustdoc's JSON: see .ci/api. Prints what is wrong and exits 1."""

import json
import sys

# The form of rustdoc's JSON that this reads; what it uses has been the same in several.
FORMATS = range(53, 60)

# Part of the interface (ARCHITECTURE.md, "Other crates in the interface"): a new major version of one of these is one of
# this crate.
INTERFACE = {
    "std", "core", "alloc", "bytes", "http", "http_body", "http_body_util", "serde_core", "tokio", "tower_layer", "tower_service", "tower",
    "serde_json", "uuid", "axum_core", "sqlx_core", "sqlx_mysql", "sqlx_postgres", "sqlx_sqlite",
}

# Client crates and the files that may show their types.
INTEGRATIONS = {
    "async_nats": ("src/outbox/publish/nats/", "src/inbox/source/nats.rs"),
    "lapin": ("src/outbox/publish/rabbitmq/", "src/inbox/source/rabbitmq.rs"),
    "rdkafka": ("src/outbox/publish/kafka/",),
    "redis": ("src/store/redis/", "src/outbox/publish/redis_streams/", "src/inbox/source/redis.rs"),
    "reqwest": ("src/client/reqwest.rs", "src/outbox/publish/http_publisher/"),
    "reqwest_middleware": ("src/client/reqwest.rs",),
}


class Interface:
    """What can be reached from the root, and what is wrong with it."""

    def __init__(self, doc):
        self.index, self.paths, self.crates = doc["index"], doc["paths"], doc["external_crates"]
        self.wrong, self.seen, self.functions, self.foreign = [], set(), 0, set()
        self.futures = {
            i["inner"]["impl"]["for"]["resolved_path"]["id"]
            for i in self.index.values()
            if "impl" in i["inner"]
            and (i["inner"]["impl"]["trait"] or {}).get("path", "").split("::")[-1] == "Future"
            and "resolved_path" in i["inner"]["impl"]["for"]
            and i["crate_id"] == 0
            and not i["inner"]["impl"]["blanket_impl"]
        }

    def get(self, number):
        return self.index.get(str(number))

    def complain(self, item, owner, what):
        span = item["span"] or {"filename": "?", "begin": [0]}
        name = "::".join(part for part in (owner, item["name"]) if part)
        self.wrong.append(f"{span['filename']}:{span['begin'][0]}: {name}: {what}")

    def walk(self, number, modules):
        """An item that can be reached, inside these modules' texts."""
        item = self.get(number)
        if item is None or (number, len(modules) and modules[-1]["name"]) in self.seen:
            return
        self.seen.add((number, len(modules) and modules[-1]["name"]))
        (kind, inner), = item["inner"].items()
        if kind == "module":
            for child in inner["items"]:
                self.walk(child, [*modules, item])
        elif kind == "use":
            if inner["id"] is not None and self.get(inner["id"]) is not None:
                target = self.get(inner["id"])
                if inner["is_glob"] and "module" in target["inner"]:
                    for child in target["inner"]["module"]["items"]:
                        self.walk(child, modules)
                else:
                    self.walk(inner["id"], modules)
            elif inner["id"] is not None:
                self.types({"resolved_path": {"id": inner["id"], "path": inner["source"]}}, item, "", modules)
        else:
            self.item(item, kind, inner, None, modules)

    def item(self, item, kind, inner, owner, modules):
        name = owner["name"] if owner else ""
        texts = modules + ([owner] if owner else []) + [item]
        if kind == "function":
            self.types([inner["sig"], inner["generics"]], item, name, texts)
            self.function(item, inner, name, texts)
        elif kind in ("struct", "enum", "union", "trait"):
            self.types([inner["generics"], inner.get("bounds", [])], item, name, texts)
            members = list(inner.get("variants", [])) + list(inner.get("items", []))
            shape = inner.get("kind")
            if isinstance(shape, dict):
                members += shape.get("plain", {}).get("fields", []) or shape.get("tuple", [])
            for member in members:
                self.member(member, item, texts)
            if kind == "trait":
                for number in inner["implementations"]:
                    self.foreign_implementation(number, texts)
            else:
                for number in inner["impls"]:
                    self.implementation(number, item, texts)
        else:
            self.types(inner, item, name, texts)

    def member(self, number, owner, texts):
        item = self.get(number)
        if item is None:
            return
        (kind, inner), = item["inner"].items()
        if kind == "variant" and isinstance(inner["kind"], dict):
            (_, shape), = inner["kind"].items()
            for field in (shape["fields"] if isinstance(shape, dict) else shape):
                if field is not None:
                    self.member(field, owner, [*texts, item])
        else:
            self.item(item, kind, inner, owner, texts[:-1])

    def implementation(self, number, owner, texts):
        item = self.get(number)
        if item is None or item["crate_id"] != 0:
            return
        inner = item["inner"]["impl"]
        if inner["is_synthetic"] or inner["blanket_impl"]:
            return
        if inner["trait"] is not None and inner["trait"]["path"].split("::")[-1] == "Unpin":
            return  # written by a macro, with what is private to it
        if inner["trait"] is not None:
            # Its documentation is the trait's.
            self.types([inner["trait"], inner["generics"], inner["for"]], item, owner["name"], [*texts, item], owner)
            for child in map(self.get, inner["items"]):
                if child is not None and "function" not in child["inner"]:
                    self.types(child["inner"], child, owner["name"], [*texts, item], owner)
            return
        for child in map(self.get, inner["items"]):
            if child is not None and child["visibility"] == "public":
                (kind, what), = child["inner"].items()
                self.item(child, kind, what, owner, texts)

    def foreign_implementation(self, number, texts):
        """Of a trait of ours for somebody else's type; those for our own are met with their types."""
        item = self.get(number)
        if item is None or item["crate_id"] != 0:
            return
        inner = item["inner"]["impl"]
        of = inner["for"].get("resolved_path", {}).get("id")
        if inner["is_synthetic"] or inner["blanket_impl"] or self.get(of) is not None:
            return
        self.types([inner["trait"], inner["generics"], inner["for"]], item, texts[-1]["name"], [*texts, item])

    def types(self, part, item, name, texts, owner=None):
        """Complains of foreign types in a part of an item."""
        for number in resolved(part):
            path = self.paths.get(str(number))
            if path is None or path["crate_id"] == 0:
                continue
            crate = self.crates[str(path["crate_id"])]["name"]
            self.foreign.add(crate)
            if crate in INTEGRATIONS:
                files = INTEGRATIONS[crate]
                homes = [item, *([owner] if owner else [])]
                if not all(home["span"] and home["span"]["filename"].startswith(files) for home in homes):
                    self.complain(item, name, f"shows `{'::'.join(path['path'])}` outside of the integration of {crate}")
                elif not any("semver" in (text["docs"] or "") for text in texts):
                    self.complain(item, name, f"shows a type of {crate}, and no text says that it is outside semver")
            elif crate not in INTERFACE:
                self.complain(item, name, f"shows `{'::'.join(path['path'])}`: {crate} is no part of the interface")

    def function(self, item, inner, name, texts):
        self.functions += 1
        output = inner["sig"]["output"]
        docs = item["docs"] or ""
        # A module may say it for all that is in it.
        heads = [text["docs"] or "" for text in texts if "module" in text["inner"] or text is item]
        future = inner["header"]["is_async"] or self.is_future(output)
        fails = self.fails(output)
        if fails and "# Errors" not in docs:
            self.complain(item, name, "returns a Result and has no section *Errors*")
        if future and not any("# Cancel safety" in head for head in heads):
            self.complain(item, name, "returns a future and has no section *Cancel safety*")

    def is_future(self, output):
        if output is None:
            return False
        if "resolved_path" in output:
            path = output["resolved_path"]
            last = path["path"].split("::")[-1]
            alias = self.alias(path)
            if alias is not None:
                return self.is_future(alias)
            if last in ("Pin", "Box") and path["args"]:
                return any(self.is_future(arg["type"]) for arg in arguments(path) if "type" in arg)
            return path["id"] in self.futures
        bounds = output.get("impl_trait", []) or [
            {"trait_bound": bound} for bound in output.get("dyn_trait", {}).get("traits", [])
        ]
        return any(
            bound.get("trait_bound", {}).get("trait", {}).get("path", "").split("::")[-1] == "Future" for bound in bounds
        )

    def fails(self, output):
        """Whether it is a Result, or a future of one."""
        if output is None:
            return False
        if "resolved_path" in output:
            path = output["resolved_path"]
            if path["path"].split("::")[-1] == "Result":
                return True
            alias = self.alias(path)
            if alias is not None:
                return self.fails(alias)
            if path["path"].split("::")[-1] in ("Pin", "Box"):
                return any(self.fails(arg["type"]) for arg in arguments(path) if "type" in arg)
            return False
        if self.is_future(output):
            return any(
                self.fails(constraint["binding"]["equality"]["type"])
                for constraint in constraints(output)
                if "type" in constraint.get("binding", {}).get("equality", {})
            )
        return False

    def alias(self, path):
        item = self.get(path["id"])
        return item["inner"]["type_alias"]["type"] if item and "type_alias" in item["inner"] else None


def arguments(path):
    return (path["args"] or {}).get("angle_bracketed", {}).get("args", [])


def constraints(part):
    """All constraints, such as `Output = …`, anywhere in a part."""
    if isinstance(part, dict):
        yield from part.get("constraints", [])
        for value in part.values():
            yield from constraints(value)
    elif isinstance(part, list):
        for value in part:
            yield from constraints(value)


def resolved(part):
    """The numbers of all types and traits that a part names."""
    if isinstance(part, dict):
        if "id" in part and "path" in part:
            yield part["id"]
        for value in part.values():
            yield from resolved(value)
    elif isinstance(part, list):
        for value in part:
            yield from resolved(value)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        doc = json.load(file)
    if doc["format_version"] not in FORMATS:
        print(f"api: not checked: rustdoc's format {doc['format_version']} is not known")
        return 0
    interface = Interface(doc)
    interface.walk(doc["root"], [])
    for line in sorted(set(interface.wrong)):
        print(f"api: {line}")
    if interface.wrong:
        return 1
    crates = ", ".join(sorted(interface.foreign))
    print(f"api: {interface.functions} functions in order; crates in the interface: {crates}")
    return 0


sys.exit(main())
