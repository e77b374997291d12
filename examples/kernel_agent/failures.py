"""How a grading ends early: by an answer's fault, or by the set-up's."""


class GraderError(RuntimeError):
    """The set-up cannot grade: no sandbox, no Torch, no such GPU. Never an answer's fault."""


class Failed(Exception):
    """An answer's fault: how far it came, and what its model hears."""

    def __init__(self, stage, said):
        self.stage, self.said = stage, said
