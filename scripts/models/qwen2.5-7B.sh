# Qwen2.5-7B and -Instruct; of DeepSeek-R1-Distill-Qwen-7B the base is 10000
MODEL_NAME=Qwen2.5-7B-Instruct
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-28}"
  --hidden-size 3584
  --ffn-hidden-size 18944
  --num-attention-heads 28
  --num-query-groups 4
  --vocab-size 152064
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
  --norm-epsilon 1e-6
)
