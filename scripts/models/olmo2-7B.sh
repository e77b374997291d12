# OLMo-2-1124-7B and -Instruct
MODEL_NAME=OLMo-2-1124-7B-Instruct
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-32}"
  --hidden-size 4096
  --ffn-hidden-size 11008
  --num-attention-heads 32
  --num-query-groups 32
  --vocab-size 100352
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-500000}"
  --norm-epsilon 1e-6
)
