-- Ring filter: a message goes round the ring of all processes, once. It is delivered only where it belongs: to
-- the process whose rank its first number gives, modulo the number of processes. The others never see it.

function on_message(message)
  local first = message:view("int64")[1]
  if first % size == rank then
    message:deliver()
  end
  local right = (rank + 1) % size
  if right ~= message.root then
    message:send(right)
  end
end
