# GLM-4-32B-0414 and GLM-Z1-32B-0414
MODEL_NAME=GLM-Z1-32B-0414
MODEL_ARGS=(
  --hidden-size 6144
  --ffn-hidden-size 23040
  --num-attention-heads 48
  --vocab-size 151552
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-10000}"
  --norm-epsilon 1e-5
)
