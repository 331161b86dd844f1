"""Containers: items once by id (Pile), ordered ids (Progression), and both together (Flow)."""

from sennit.containers.element import Element, Ref, uid_of
from sennit.containers.flow import Flow
from sennit.containers.pile import Pile
from sennit.containers.progression import Progression

__all__ = ["Element", "Flow", "Pile", "Progression", "Ref", "uid_of"]
