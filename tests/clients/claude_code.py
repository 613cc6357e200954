"""Claude Code against the scripted server: Messages."""

import agent

PACKAGE = "@anthropic-ai/claude-code@2.1.332"


def main():
    task, program = agent.from_npm(
        "claude_code", PACKAGE, "claude",
        lambda command: ("Bash", {"command": command, "description": "Look"}))

    def environment(url):
        return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": "none",
                "ANTHROPIC_MODEL": "scripted", "ANTHROPIC_SMALL_FAST_MODEL": "scripted",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
                "DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1"}

    task.run([program, "--print", agent.TASK, "--allowedTools", "Bash"], environment)


main()
