# Phi-4-mini-instruct
MODEL_NAME=Phi-4-mini-instruct
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-32}"
  --hidden-size 3072
  --ffn-hidden-size 8192
  --num-attention-heads 24
  --num-query-groups 8
  --vocab-size 200064
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-10000}"
  --norm-epsilon 1e-5
)
