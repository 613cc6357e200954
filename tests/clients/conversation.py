"""A long conversation with tools: what the scripted model says in it, and what a client is to see.

Step k: the model calls `look` with the place that the result of step k-1 named; the client's own
result names the next place. In one step there are two calls. The last answer is text.
"""

import json

import harness

STEPS = 24
PARALLEL = 7
QUESTION = "Follow the trail."
ANSWER = "The trail ends at “place %d” \\ with \"quotes\",\ttabs & <tags>." % STEPS
TOOL = "look"
DESCRIPTION = "Look at a place"
SCHEMA = {"type": "object",
          "properties": {"place": {"type": "string"}, "depth": {"type": "integer"}},
          "required": ["place"]}


def place(step):
    return "place %d; it's “here” \\ there\n\"%d\"" % (step, step)


def thought(step):
    return "Step %d comes next." % step


def wanted_calls(step):
    wanted = [{"place": place(step), "depth": step}]
    if step == PARALLEL:
        wanted.append({"place": "a side of " + place(step), "depth": -1})
    return wanted


def result(arguments):
    """What the client's tool says."""
    return "at {%s} depth {%s}" % (arguments["place"], arguments["depth"])


def said(step):
    """The text before the calls of a step; most have none."""
    return "Now step %d." % step if step % 5 == 0 else ""


def rules():
    made = [{"when": [QUESTION], "thinking": thought(1), "answer": step_text(1)}]
    for step in range(1, STEPS + 1):
        results = [result(arguments) for arguments in wanted_calls(step)]
        rule = {"when": results, "thinking": thought(step + 1)}
        rule["answer"] = ANSWER if step == STEPS else step_text(step + 1)
        made.append(rule)
    return made


def step_text(step):
    several = [harness.call(TOOL, **arguments) for arguments in wanted_calls(step)]
    return said(step) + harness.calls(*several)


def check_turn(step, text, thinking, found, what):
    """One answer as a client saw it; `found` are arguments, as JSON texts or objects."""
    what = "%s, step %d" % (what, step)
    if thinking is not None:
        harness.same(thinking, thought(step), what + ", thinking")
    objects = [json.loads(one) if isinstance(one, str) else one for one in found]
    harness.same(objects, wanted_calls(step) if step <= STEPS else [], what + ", calls")
    harness.same(text or "", said(step) if step <= STEPS else ANSWER, what + ", text")
    return objects
