"""OpenCode against the scripted server: Chat Completions through its compatible provider."""

import json

import agent

PACKAGE = "opencode-ai@1.18.33"


def config(url):
    return json.dumps({
        "autoupdate": False, "share": "disabled", "model": "here/scripted",
        "small_model": "here/scripted", "permission": {"bash": "allow"},
        "provider": {"here": {"npm": "@ai-sdk/openai-compatible", "name": "here",
                              "options": {"baseURL": url + "/v1", "apiKey": "none"},
                              "models": {"scripted": {
                                  "name": "scripted",
                                  "limit": {"context": 200000, "output": 8000}}}}}})


def main():
    task, program = agent.from_npm(
        "opencode", PACKAGE, "opencode",
        lambda command: ("bash", {"command": command, "description": "Look"}))

    def environment(url):
        task.write(".config/opencode/opencode.json", config(url))
        return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1", "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1"}

    task.run([program, "run", agent.TASK], environment)


main()
