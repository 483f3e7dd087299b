-- Broadcast: the root's process delegates a message, and every other one receives it.
--
-- The processors pass it on over a tree, whether their processes compute or not. All sends of an activation
-- leave before its delivery, so the way to the host is not on the way to the next process.

local degree = 2

function on_message(message)
  for _, child in ipairs(tree.children(message.root, degree)) do
    message:send(child)
  end
  if rank ~= message.root then
    message:deliver()
  end
end
