# Qwen2.5-1.5B and -Instruct; of DeepSeek-R1-Distill-Qwen-1.5B the base is 10000
MODEL_NAME=Qwen2.5-1.5B-Instruct
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-28}"
  --hidden-size 1536
  --ffn-hidden-size 8960
  --num-attention-heads 12
  --num-query-groups 2
  --vocab-size 151936
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
  --norm-epsilon 1e-6
)
