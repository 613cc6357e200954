"""Codex CLI against the scripted server: Responses."""

import agent

PACKAGE = "@openai/codex@0.171.0"
CONFIG = """model = "scripted"
model_provider = "here"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.here]
name = "here"
base_url = "%s/v1"
wire_api = "responses"
"""


def main():
    task, program = agent.from_npm("codex", PACKAGE, "codex",
                                   lambda command: ("exec_command", {"cmd": command}))

    def environment(url):
        task.write(".codex/config.toml", CONFIG % url)
        return {"CODEX_HOME": str(task.home / ".codex")}

    task.run([program, "exec", "--skip-git-repo-check",
              "--dangerously-bypass-approvals-and-sandbox", agent.TASK], environment)


main()
