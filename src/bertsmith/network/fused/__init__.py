"""Training on a GPU in bf16, with fewer passes over memory: kernels written in Triton.

Products and attention are torch's and take half of a step there. What is between them is bound by
memory, and by the processor that starts its many small kernels. Here each of these is one kernel in
either direction, and what it saves is in docs/experiments/gpu.md:

    add_norm      a product's bias, dropout, the residual sum and the layer norm after it
    gelu          a product's bias and the GELU
    projections   queries, keys and values, whose gradients are joined and summed at once
    weights       the bf16 copies of a block's weights

(`objectives.fused_loss` is another.) `support` says where they are used: on a GPU, in training, in
bf16 autocast, where Triton works. Elsewhere torch's own operations compute the same, within the
rounding of bf16. Gradients of biases and norms are summed in two stages, in a fixed order.

Modules with kernels import Triton, which comes with torch's builds for CUDA only, so they are
imported where they are used. What Triton's interpreter does not show is kept by these rules:
offsets are 64 bits wide, tensors are made contiguous first, and arguments that vary from step to
step are not specialised, or each batch would compile kernels anew.
"""
