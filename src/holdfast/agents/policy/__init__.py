"""What an agent may do: which tools, and which commands. Pure decisions, each with its reason."""

from holdfast.agents.policy.configured import exec_settings, policy_of
from holdfast.agents.policy.exec_policy import ExecDecision, ExecPolicy, inside_folder, judge
from holdfast.agents.policy.git_config import runs_nothing
from holdfast.agents.policy.groups import CATALOGUE, GROUPS, PROFILES, expand
from holdfast.agents.policy.patterns import check_pattern, matches
from holdfast.agents.policy.protected_files import WriteDecision, judge_write
from holdfast.agents.policy.runners import Reads, would_read
from holdfast.agents.policy.shell import ShellCall, follow
from holdfast.agents.policy.tools import (
    LAYERS,
    Decision,
    Elevation,
    Policy,
    Rules,
    Situation,
    Step,
    Unknown,
    allowed,
    decide,
    explain,
    unknown_names,
)
from holdfast.agents.policy.words import Pipeline, Refusal, parse

__all__ = [
    "CATALOGUE",
    "GROUPS",
    "LAYERS",
    "PROFILES",
    "Decision",
    "Elevation",
    "ExecDecision",
    "ExecPolicy",
    "Pipeline",
    "Policy",
    "Reads",
    "Refusal",
    "Rules",
    "ShellCall",
    "Situation",
    "Step",
    "Unknown",
    "WriteDecision",
    "allowed",
    "check_pattern",
    "decide",
    "exec_settings",
    "expand",
    "explain",
    "follow",
    "inside_folder",
    "judge",
    "judge_write",
    "matches",
    "parse",
    "policy_of",
    "runs_nothing",
    "unknown_names",
    "would_read",
]
