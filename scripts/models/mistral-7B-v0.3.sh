# Mistral-7B-v0.3 and -Instruct
MODEL_NAME=Mistral-7B-Instruct-v0.3
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-32}"
  --hidden-size 4096
  --ffn-hidden-size 14336
  --num-attention-heads 32
  --num-query-groups 8
  --vocab-size 32768
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
  --norm-epsilon 1e-5
)
