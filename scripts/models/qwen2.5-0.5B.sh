# Qwen2.5-0.5B and -Instruct
MODEL_NAME=Qwen2.5-0.5B-Instruct
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-24}"
  --hidden-size 896
  --ffn-hidden-size 4864
  --num-attention-heads 14
  --num-query-groups 2
  --vocab-size 151936
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
  --norm-epsilon 1e-6
)
