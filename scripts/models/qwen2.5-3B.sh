# Qwen2.5-3B and -Instruct
MODEL_NAME=Qwen2.5-3B-Instruct
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-36}"
  --hidden-size 2048
  --ffn-hidden-size 11008
  --num-attention-heads 16
  --num-query-groups 2
  --vocab-size 151936
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
  --norm-epsilon 1e-6
)
