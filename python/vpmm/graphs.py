# SPDX-License-Identifier: MIT
"""Plans of torch.export programs. Only the graph is walked: nothing is run, and torch is not imported."""
from .errors import Unsupported
from .plans import make_plan

# What shows a weight in another shape without reading it: the kernel is whoever uses the result.
VIEWS = ("view", "reshape", "permute", "transpose", "t", "expand", "unsqueeze", "squeeze", "slice", "select", "alias",
         "detach", "as_strided", "_unsafe_view")


def _operator(node):
    """aten.mm.default gives "mm"."""
    return getattr(node.target, "__name__", str(node.target)).split(".")[0]


def weights_of(signature):
    """The name of each weight by the name of its placeholder. Buffers that are not saved are none."""
    found = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    return {input_name: name for input_name, name in found.items() if name not in signature.non_persistent_buffers}


def read_steps(graph, placeholders):
    """For each node that reads weights, in the order of the graph, their names."""
    shown, steps = {}, []
    for node in graph.nodes:
        if node.op == "placeholder" and node.name in placeholders:
            shown[node] = (placeholders[node.name],)
            continue
        if node.op != "call_function":
            continue
        read = [name for argument in node.all_input_nodes for name in shown.get(argument, ())]
        if read and _operator(node) in VIEWS:
            shown[node] = tuple(read)
        elif read:
            steps.append(read)
    return steps


def plan(exported_program):
    """The plan of a program: the order in which kernels read weights, and the floor."""
    placeholders = weights_of(exported_program.graph_signature)
    mutated = set(exported_program.graph_signature.buffers_to_mutate.values())
    steps = [[name for name in step if name not in mutated]
             for step in read_steps(exported_program.graph, placeholders)]
    state = exported_program.state_dict
    missing = sorted({name for step in steps for name in step} - set(state))
    if missing:
        raise Unsupported(f"{missing[0]}: the program reads it, and has no such weight")
    return make_plan(steps, {name: tensor.numel() * tensor.element_size() for name, tensor in state.items()})
