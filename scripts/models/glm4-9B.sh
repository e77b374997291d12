# GLM-4-9B-0414 and GLM-Z1-9B-0414
MODEL_NAME=GLM-Z1-9B-0414
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-40}"
  --hidden-size 4096
  --ffn-hidden-size 13696
  --num-attention-heads 32
  --num-query-groups 2
  --vocab-size 151552
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-10000}"
  --norm-epsilon 1e-5
)
