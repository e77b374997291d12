# Qwen2.5-32B
MODEL_NAME=Qwen2.5-32B-Instruct
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-64}"
  --hidden-size 5120
  --ffn-hidden-size 27648
  --num-attention-heads 40
  --num-query-groups 8
  --vocab-size 152064
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
)
