# SmolLM2-135M and -Instruct
MODEL_NAME=SmolLM2-135M-Instruct
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-30}"
  --hidden-size 576
  --ffn-hidden-size 1536
  --num-attention-heads 9
  --num-query-groups 3
  --vocab-size 49152
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-100000}"
  --norm-epsilon 1e-5
)
