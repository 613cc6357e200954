"""mini-SWE-agent against the scripted server: Chat Completions through LiteLLM."""

import agent
import harness

PACKAGES = ["mini-swe-agent==2.4.6"]
CONFIG = """agent:
  system_template: You solve tasks with a shell.
  instance_template: "{{task}}"
  step_limit: 6
  cost_limit: 0
environment:
  environment_class: local
model:
  model_name: openai/scripted
  cost_tracking: ignore_errors
  model_kwargs:
    api_base: %s/v1
    api_key: none
"""


def main():
    args = harness.arguments()
    python = harness.pip(args, "mini", PACKAGES)
    agent.isolated()
    # Its last turn is a command too: the first line says that it is done, the rest is the answer.
    task = agent.Task(args, "mini_swe_agent", lambda command: ("bash", {"command": command}),
                      lambda answer: "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo '%s'" %
                      answer)

    def environment(url):
        task.write("config.yaml", CONFIG % url)
        return {"MSWEA_CONFIGURED": "true", "MSWEA_GLOBAL_CONFIG_DIR": str(task.home),
                "MSWEA_SILENT_STARTUP": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

    task.run([str(python.parent / "mini"), "--yolo", "--exit-immediately", "--config",
              str(task.home / "config.yaml"), "--task", agent.TASK], environment)


main()
