"""People: who may log in, what their role lets them do, and the teams that they share with.

user = users.add(tx, "ada", role=Role.MEMBER, password=users.hashed("a long password"))
teams.join(tx, "research", user)
roles.may(user.role, Right.TALK)
"""

from holdfast.people import budgets, contacts, roles, teams, users
from holdfast.people.budgets import Budget
from holdfast.people.roles import Right, Role
from holdfast.people.teams import Team
from holdfast.people.users import Invitation, User

__all__ = [
    "Budget",
    "Invitation",
    "Right",
    "Role",
    "Team",
    "User",
    "budgets",
    "contacts",
    "roles",
    "teams",
    "users",
]
