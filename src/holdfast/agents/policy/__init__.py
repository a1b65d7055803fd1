"""What an agent may do: which tools, and which commands. Pure decisions, each with its reason."""

from holdfast.agents.policy.configured import exec_settings, policy_of
from holdfast.agents.policy.exec_policy import ExecDecision, ExecPolicy, inside_folder, judge
from holdfast.agents.policy.groups import CATALOGUE, GROUPS, PROFILES, expand
from holdfast.agents.policy.patterns import check_pattern, matches
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
    "Refusal",
    "Rules",
    "Situation",
    "Step",
    "Unknown",
    "allowed",
    "check_pattern",
    "decide",
    "exec_settings",
    "expand",
    "explain",
    "inside_folder",
    "judge",
    "matches",
    "parse",
    "policy_of",
    "unknown_names",
]
