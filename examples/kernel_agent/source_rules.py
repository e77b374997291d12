"""The part of Python that an answer for the triton backend may be written in: a list of what is allowed, and nothing else.

An answer is `ModelNew`, helpers and Triton kernels. It needs no name that starts with an underscore, no module but Torch, Triton and math, few
functions of Torch and few attributes of its tensors; so it reaches no frame, no module's insides, no clock and no other process. What the words
do not show (operators, as in `x @ w`) is seen when it runs, by inside/runner.py's Guard. C++ needs no such rules: see README.md, "Cheats".
"""

import ast
import builtins

__all__ = ["problem_of"]

MOST_CHARACTERS = 40_000
MODULES = {  # what may be imported, and what of it may be named; None: all that has no underscore
    "torch": set(
        "nn Tensor empty empty_like empty_strided zeros zeros_like full full_like ones ones_like randn rand no_grad strided device dtype "
        "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool double float half long int".split()
    ),
    "torch.nn": set(
        "Module Parameter ParameterList ModuleList Linear Conv1d Conv2d LayerNorm GroupNorm BatchNorm2d Embedding GRUCell".split()
    ),
    "triton": {"jit", "cdiv", "next_power_of_2", "language"},
    "triton.language": None,
    "triton.language.extra.libdevice": None,
    "math": None,
}
FORBIDDEN_OF_LANGUAGE = {"inline_asm_elementwise", "extra", "core", "semantic", "standard", "random", "target_info"}
BUILTINS = set(
    "range len int float bool str min max abs sum tuple list dict zip enumerate round pow divmod super ValueError True False None".split()
)
# Of anything that is not a module: tensors, modules of parameters, kernels, lists. A kernel's blocks have some of them too.
ATTRIBUTES = set(
    "shape dtype device size stride numel dim ndim nelement element_size is_contiguous contiguous is_cuda data_ptr view reshape transpose permute "
    "expand unsqueeze squeeze flatten t T to weight bias weight_ih weight_hh bias_ih bias_hh in_features out_features normalized_shape eps "
    "num_groups stride padding kernel_size new_empty new_zeros append extend items keys values get element_ty cast sum max min".split()
)
STATEMENTS = (
    ast.Module, ast.Import, ast.ImportFrom, ast.alias, ast.FunctionDef, ast.ClassDef, ast.arguments, ast.arg, ast.Return, ast.Assign,
    ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Raise, ast.Assert, ast.Expr, ast.Pass, ast.Break, ast.Continue, ast.With,
    ast.withitem, ast.expr, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.keyword, ast.comprehension, ast.Slice,
)  # fmt: skip
EXPRESSIONS_REFUSED = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
# nn.Module's own methods are what the grader calls.
METHODS_REFUSED = set(
    "to load_state_dict state_dict parameters named_parameters buffers named_buffers modules named_modules children named_children train eval "
    "apply cuda cpu half float double type requires_grad_ zero_grad share_memory register_buffer add_module".split()
)


class _Refused(Exception):
    pass


def _refuse(node, why):
    raise _Refused(f"line {getattr(node, 'lineno', 1)}: {why}")


class _Rules(ast.NodeVisitor):
    def __init__(self, tree):
        self.modules = {}  # name in the file: the module it stands for
        self.known = set(BUILTINS)
        self.own = set()  # attributes that its classes give themselves: allowed on self, and on nothing else
        self.function = None  # the innermost, and its class
        self.owner = None
        self.self_argument = None
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                self.known.add(node.name)
            elif isinstance(node, ast.arg):
                self.known.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.known.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                self.own.add(node.attr)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self.own |= {each.name for each in node.body if isinstance(each, ast.FunctionDef)}

    def generic_visit(self, node):
        if not isinstance(node, STATEMENTS) or isinstance(node, EXPRESSIONS_REFUSED):
            _refuse(node, f"{type(node).__name__} is not part of what an answer may be written in")
        super().generic_visit(node)

    def _name(self, node, name):
        if name.startswith("_"):
            _refuse(node, f"{name}: names that start with an underscore are not allowed")

    def _bind(self, node, name):
        """A name that the file gives to something: it may hide nothing that these rules go by."""
        self._name(node, name)
        if name == "self" and node is not self.self_argument:
            _refuse(node, "self is the first argument of a method, and nothing else")
        if (
            name in self.modules
            or name in BUILTINS
            or (hasattr(builtins, name) and name not in {"input", "all", "any", "type", "id", "hash"})
        ):
            _refuse(node, f"{name} has a meaning of its own: choose another name")

    def _import(self, node, module, name):
        if module not in MODULES:
            _refuse(node, f"{module}: only torch, triton and math may be imported")
        self._name(node, name)
        self.modules[name] = module

    def visit_Import(self, node):
        for each in node.names:
            if each.asname is None and "." in each.name:
                _refuse(node, f"write: import {each.name} as NAME")
            self._import(node, each.name, each.asname or each.name)

    def visit_ImportFrom(self, node):
        for each in node.names:
            self._import(node, f"{node.module}.{each.name}" if node.level == 0 else ".", each.asname or each.name)

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Load):
            self._name(node, node.id)
            if node.id not in self.known and node.id not in self.modules:
                _refuse(node, f"{node.id} is not known, or not allowed")
        else:
            self._bind(node, node.id)

    def visit_arg(self, node):
        self._bind(node, node.arg)
        if node.annotation is not None:
            self.visit(node.annotation)

    def _module_of(self, node):
        """The module that an expression stands for, if it is one."""
        if isinstance(node, ast.Name):
            return self.modules.get(node.id)
        if isinstance(node, ast.Attribute):
            whole = f"{self._module_of(node.value)}.{node.attr}"
            return whole if whole in MODULES else None
        return None

    def visit_Attribute(self, node):
        module = self._module_of(node.value)
        if isinstance(node.ctx, ast.Store):
            if not _is_self(node.value):
                _refuse(node, "only self's attributes may be assigned")
            if self.function != "__init__":
                _refuse(node, f"self.{node.attr}: forward keeps nothing between calls; assign it in __init__")
            if node.attr in METHODS_REFUSED or node.attr in {"forward", "training"}:
                _refuse(node, f"self.{node.attr} belongs to nn.Module")
        is_constructor = (
            node.attr == "__init__"
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
            and node.value.func.id == "super"
            and self.function == "__init__"
        )
        if not is_constructor:
            self._name(node, node.attr)
        if module is not None:
            allowed = MODULES[module]
            if f"{module}.{node.attr}" in MODULES:
                pass
            elif allowed is not None and node.attr not in allowed:
                _refuse(node, f"{module}.{node.attr} is not allowed: a kernel of yours has to do the work")
            elif module == "triton.language" and node.attr in FORBIDDEN_OF_LANGUAGE:
                _refuse(node, f"tl.{node.attr} is not allowed")
        elif (
            not is_constructor and node.attr not in ATTRIBUTES and not (_is_self(node.value) and node.attr in self.own)
        ):
            _refuse(node, f".{node.attr} is not allowed: a kernel of yours has to do the work")
        self.visit(node.value)

    def visit_FunctionDef(self, node):
        for each in node.decorator_list:
            is_jit = isinstance(each, ast.Attribute) and self._module_of(each.value) == "triton" and each.attr == "jit"
            if not is_jit or self.owner is not None:
                _refuse(each, "@triton.jit is the only decorator")
        if self.owner is not None and self.function is None:
            if node.name != "__init__":
                self._bind(node, node.name)
            if node.name in METHODS_REFUSED:
                _refuse(node, f"{node.name} belongs to nn.Module")
            arguments = [*node.args.posonlyargs, *node.args.args]
            if not arguments or arguments[0].arg != "self":
                _refuse(node, f"{node.name}: the first argument of a method is self")
            self.self_argument = arguments[0]
        else:
            self._bind(node, node.name)
        outer, self.function = self.function, node.name
        for each in [node.args, *node.body, *([node.returns] if node.returns else [])]:
            self.visit(each)
        self.function = outer

    def visit_ClassDef(self, node):
        is_module = (
            len(node.bases) == 1
            and isinstance(node.bases[0], ast.Attribute)
            and self._module_of(node.bases[0].value) == "torch.nn"
        )
        if (
            not is_module
            or node.bases[0].attr != "Module"
            or node.keywords
            or node.decorator_list
            or self.owner is not None
        ):
            _refuse(node, f"class {node.name}: should be derived from nn.Module, at the top of the file")
        self._bind(node, node.name)
        if not all(isinstance(each, ast.FunctionDef) or _is_text(each) for each in node.body):
            _refuse(node, f"class {node.name}: should have methods only")
        self.owner = node.name
        for each in node.body:
            self.visit(each)
        self.owner = None

    def visit_With(self, node):
        for each in node.items:
            call = each.context_expr
            if (
                not (
                    isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "no_grad"
                )
                or each.optional_vars
            ):
                _refuse(node, "with is for torch.no_grad() only")
        self.generic_visit(node)

    def visit_Constant(self, node):
        if isinstance(node.value, (bytes, complex)):
            _refuse(node, "bytes and complex numbers are not allowed")


def _is_self(node):
    return isinstance(node, ast.Name) and node.id == "self"


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def problem_of(code):
    """Why an answer in Python is refused, with the line; nothing when it is not."""
    if len(code) > MOST_CHARACTERS:
        return f"longer than {MOST_CHARACTERS} characters"
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"line {getattr(error, 'lineno', 1)}: {getattr(error, 'msg', error)}"
    try:
        for node in tree.body:
            is_simple = isinstance(
                node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
            )
            if not is_simple and not _is_text(node):
                _refuse(node, "the file should have imports, constants, functions and classes only")
        _Rules(tree).visit(tree)
    except _Refused as refused:
        return str(refused)
    except RecursionError:
        return "nested too deeply"
    if not any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body):
        return "there is no class ModelNew"
    return ""
