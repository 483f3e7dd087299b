-- Reduce: the element-wise sum of what all processes delegate, delivered at the root, over a k-nomial tree.
--
-- Each process gives its own part to its own processor; `tag` tells one reduction from another. The processors
-- combine in the order in which parts arrive. No process waits for another one but the root.

local degree = 4
local under_way = {}

function on_message(message)
  local key = message.root .. ":" .. message.tag
  local one = under_way[key]
  if one == nil then
    -- The first part: all others are added to it.
    one = { left = #tree.knomial_children(message.root, degree), result = message:keep() }
    under_way[key] = one
  else
    one.result:view("float64"):combine("sum", message:view("float64"))
    one.left = one.left - 1
  end
  if one.left > 0 then
    return
  end
  under_way[key] = nil
  local parent = tree.knomial_parent(message.root, degree)
  if parent == nil then
    one.result:deliver()
  else
    one.result:send(parent)
  end
  one.result:release()
end
