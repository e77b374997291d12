#!/usr/bin/env python3
"""Two small servers of the Model Context Protocol over standard input and output.

    python3 examples/mcp_tools/server.py shop --seed 3      tool price(item)
    python3 examples/mcp_tools/server.py calculator         tool multiply(a, b)

Each seed is another shop: the same goods at other prices.
"""

import argparse
import json
import random
import sys

GOODS = ["fig", "nut", "pea", "egg", "jam", "tea", "oil", "rye", "cod", "ham", "bun", "pie"]


def prices(seed):
    rng = random.Random(seed)
    return {item: rng.randint(11, 99) for item in GOODS}


def schema(**types):
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in types.items()}, "required": list(types)}


def shop(seed):
    of_item = prices(seed)

    def price(item):
        if item not in of_item:
            raise ValueError(f"there is no {item}")
        return str(of_item[item])

    return {"price": (price, "What one piece costs.", schema(item="string"))}


def calculator():
    def multiply(a, b):
        return str(a * b)

    return {"multiply": (multiply, "The product of two numbers.", schema(a="integer", b="integer"))}


KINDS = {"string": str, "integer": int}


def problem_with(arguments, wanted):
    if not isinstance(arguments, dict) or set(arguments) != set(wanted["required"]):
        return f"needs: {', '.join(wanted['required'])}"
    for name, value in arguments.items():
        kind = wanted["properties"][name]["type"]
        if type(value) is not KINDS[kind]:
            return f"{name} is no {kind}"
    return None


def call(tools, params):
    function, _, wanted = tools[params["name"]]
    arguments = params.get("arguments", {})
    problem = problem_with(arguments, wanted)
    if problem is None:
        try:
            return {"content": [{"type": "text", "text": function(**arguments)}], "isError": False}
        except ValueError as error:
            problem = str(error)
    return {"content": [{"type": "text", "text": problem}], "isError": True}


def answer(name, tools, method, params):
    """The result of a request; KeyError where there is no such method or tool."""
    if method == "initialize":
        info = {"name": name, "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "ping":
        return {}
    if method == "tools/list":
        described = [{"name": each, "description": text, "inputSchema": wanted} for each, (_, text, wanted) in tools.items()]
        return {"tools": described}
    if method == "tools/call":
        return call(tools, params)
    raise KeyError(method)


def serve(name, tools):
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            reply["result"] = answer(name, tools, message["method"], message.get("params", {}))
        except KeyError as error:
            reply["error"] = {"code": -32601, "message": f"there is no {error.args[0]}"}
        print(json.dumps(reply), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["shop", "calculator"])
    parser.add_argument("--seed", type=int, default=0, help="of the shop's prices")
    args = parser.parse_args()
    serve(args.kind, shop(args.seed) if args.kind == "shop" else calculator())


if __name__ == "__main__":
    main()
