"""Pi against the scripted server: Chat Completions."""

import json

import agent

PACKAGE = "@mariozechner/pi-coding-agent@0.73.1"


def models(url):
    return json.dumps({"providers": {"here": {
        "baseUrl": url + "/v1", "api": "openai-completions", "apiKey": "none",
        "models": [{"id": "scripted", "name": "scripted", "reasoning": False, "input": ["text"],
                    "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
                    "contextWindow": 200000, "maxTokens": 8000}]}}})


def main():
    task, program = agent.from_npm("pi", PACKAGE, "pi",
                                   lambda command: ("bash", {"command": command}))

    def environment(url):
        task.write(".pi/agent/models.json", models(url))
        return {"PI_CODING_AGENT_DIR": str(task.home / ".pi" / "agent"), "PI_OFFLINE": "1",
                "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"}

    task.run([program, "--print", "--provider", "here", "--model", "scripted", agent.TASK],
             environment)


main()
